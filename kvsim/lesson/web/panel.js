// All that is shown of one system: name, queue, shares, memory, events, bands.
function systemName(recording) {
  const [, reservation] = recording.allocator.match(/^(?:paged-)?(.*)$/);
  const name = recording.allocator.startsWith("paged") ? recording.allocator : reservation;
  const how = recording.block_size
    ? say("system.blocks_of", { size: recording.block_size })
    : say("system." + recording.placement.replace("-", "_"));
  return [name, how];
}

class Panel {
  constructor(lesson, system, hooks) {
    Object.assign(this, { lesson, system, hooks, recording: lesson.systems[system] });
    this.node = element("article", "panel");
    this.build();
    const unit = Math.max(16, ...lesson.systems.map((other) => other.block_size));
    const whole = lesson.systems.every((other) => !other.block_size || unit % other.block_size === 0);
    this.view = new MemoryView(this.memory, this.recording, whole ? unit : this.recording.block_size || 16);
    this.timeline = new Timeline(this.bands, lesson, system);
    this.pointing = null;
  }

  build() {
    const canvas = (className) => this.node.appendChild(element("canvas", className));
    const head = this.node.appendChild(element("header"));
    this.title = head.appendChild(element("h2"));
    this.says = head.appendChild(element("p", "says"));
    this.status = this.node.appendChild(element("div", "status"));
    this.running = this.status.appendChild(element("span", "running"));
    this.queue = this.status.appendChild(element("span", "queue"));
    this.bar = canvas("bar");
    this.bar.setAttribute("role", "img");
    this.shares = this.node.appendChild(element("ul", "shares"));
    this.values = KINDS.map((name, kind) => this.share(name, kind));
    this.caption = this.node.appendChild(element("p", "caption"));
    this.memory = canvas("memory");
    this.memory.setAttribute("role", "img");
    this.events = this.node.appendChild(element("ul", "events"));
    this.events.tabIndex = 0;
    this.bands = canvas("bands");
    this.bands.setAttribute("role", "img");
    this.listen();
  }

  share(name, kind) {
    const item = this.shares.appendChild(element("li"));
    const swatch = item.appendChild(element("canvas", "swatch"));
    const label = item.appendChild(element("span", "name"));
    const value = item.appendChild(element("b"));
    value.dataset.kind = name;
    return { item, swatch, label, value, kind };
  }

  listen() {
    this.memory.addEventListener("pointermove", (event) => this.point(event, false));
    this.memory.addEventListener("pointerdown", (event) => this.point(event, true));
    this.memory.addEventListener("pointerleave", () => this.leave());
    let dragging = false;
    this.bands.addEventListener("pointerdown", (event) => {
      dragging = true;
      this.hooks.seek(this.timeline.stepAt(event.offsetX));
    });
    this.bands.addEventListener("pointermove", (event) => dragging && this.hooks.seek(this.timeline.stepAt(event.offsetX)));
    for (const name of ["pointerup", "pointerleave", "pointercancel"]) this.bands.addEventListener(name, () => (dragging = false));
  }

  point(event, pressed) {
    const slot = this.view.slotAt(event.offsetX, event.offsetY);
    const owner = slot < 0 ? -1 : this.recording.cells(this.frame).owner[slot];
    this.pointing = slot < 0 ? null : { slot, x: event.clientX, y: event.clientY };
    if (pressed) this.hooks.choose(owner < 0 ? null : owner);
    this.hooks.hover(owner < 0 ? null : owner);
  }

  // What lies under the pointer, beside it, so that nothing on the page moves.
  tip() {
    const tip = document.getElementById("tip");
    tip.hidden = false;
    tip.textContent = this.read(this.pointing.slot);
    const { width, height } = tip.getBoundingClientRect();
    const { x, y } = this.pointing;
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${y + 22 + height < innerHeight ? y + 22 : y - height - 12}px`;
  }

  leave() {
    this.pointing = null;
    document.getElementById("tip").hidden = true;
    this.hooks.hover(null);
  }

  // Words that depend on the language only.
  translate() {
    const [name, how] = systemName(this.recording);
    this.title.replaceChildren(name, " ", element("small", "", how));
    this.says.textContent = say("system." + this.recording.allocator.replace("-", "_") + "_says");
    for (const { item, label, kind } of this.values) {
      label.textContent = say("kind." + KINDS[kind]);
      item.title = say("kind." + KINDS[kind] + "_hint");
    }
    this.memory.setAttribute("aria-label", say("ui.memory", { name, slots: this.recording.capacity }));
    this.events.setAttribute("aria-label", say("ui.events"));
    this.bands.setAttribute("aria-label", say("ui.shares_over_time"));
    this.bands.title = say("ui.shares_over_time");
  }

  layout(room) {
    for (const { swatch, kind } of this.values) drawSwatch(swatch, kind);
    this.view.layout(this.memory.clientWidth, room);
    this.timeline.layout();
    return this.view.tableRows;
  }

  draw(step, request) {
    this.frame = this.lesson.frame(this.system, step);
    const ledger = this.recording.ledgers[this.frame];
    const stays = this.recording.staysAt(this.frame);
    const chosen = request === null && stays.length ? stays[0].request : request;
    this.running.textContent = say("ui.running", { count: stays.length });
    this.drawQueue();
    drawBar(this.bar, ledger);
    ledger.forEach((part, kind) => {
      this.values[kind].value.textContent = shown(part);
      this.values[kind].value.dataset.value = part;
    });
    this.bar.setAttribute("aria-label", ledger.map((part, kind) => `${say("kind." + KINDS[kind])} ${shown(part)}`).join(", "));
    this.view.draw(this.frame, chosen);
    this.describe(chosen);
    this.tell();
    this.timeline.draw(step);
  }

  drawQueue() {
    const waiting = this.recording.waiting(this.frame);
    const key = waiting.join() + language + paint.theme;
    if (key === this.queueKey) return;
    this.queueKey = key;
    this.queue.replaceChildren(element("span", "label", say("ui.waiting")));
    if (!waiting.length) this.queue.append(element("span", "none", say("ui.queue_empty")));
    for (const request of waiting.slice(0, 8)) {
      const chip = element("span", "chip", shown(request));
      chip.style.background = requestColour(request);
      chip.style.color = inkOn(requestColour(request));
      const [, prompt, output] = this.recording.requests[request];
      chip.title = say("ui.waits", { request, prompt, output });
      this.queue.append(chip);
    }
    if (waiting.length > 8) this.queue.append(element("span", "none", say("ui.more", { count: waiting.length - 8 })));
  }

  // What the table belongs to.
  describe(request) {
    const here = this.view.chosen;
    const kind = this.recording.block_size ? "ui.table" : "ui.extent";
    if (request === null) this.caption.textContent = say("ui.no_table");
    else this.caption.textContent = say(here ? kind : "ui.not_here", { request });
    if (this.pointing !== null) this.tip();
  }

  read(slot) {
    const { owner, kind } = this.recording.cells(this.frame);
    const size = this.recording.block_size;
    const request = owner[slot];
    const values = { slot, request, kind: say("kind." + KINDS[kind[slot]]) };
    if (size) Object.assign(values, { block: Math.floor(slot / size), offset: slot % size });
    if (request < 0) return say(size ? "ui.block_free" : "ui.slot_free", values);
    const stay = this.recording.stayOf(request, this.frame);
    values.logical = size ? this.recording.tableAt(stay, this.frame).indexOf(values.block) : slot - stay.start;
    return say(size ? "ui.slot_paged" : "ui.slot_owned", values);
  }

  tell() {
    const events = this.recording.eventsAt.get(this.frame) || [];
    const key = `${this.frame} ${language}`;
    if (key === this.eventsKey) return;
    this.eventsKey = key;
    const order = ["evict", "external", "readmit", "finish", "admit", "short", "kept", "after", "cap", "budget", "reject", "block", "arrive", "rest"];
    const sorted = [...events].sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
    const items = sorted.map((event) => element("li", event[0], sayEvent(event)));
    this.events.replaceChildren(...(items.length ? items : [element("li", "quiet", say("ui.quiet"))]));
    this.events.scrollTop = 0;
  }
}

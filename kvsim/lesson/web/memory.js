// One memory: the block table of the request pointed at, its arrows, and the slots of the pool.
const ADDRESS_SPACE = 8;

class MemoryView {
  constructor(canvas, recording, unit) {
    this.canvas = canvas;
    this.recording = recording;
    this.unit = unit;
    this.base = 16;
  }

  // Settle how slots lie on the canvas: whole units a line, cells as large as the room allows.
  layout(width, room) {
    const { capacity } = this.recording;
    this.base = parseFloat(getComputedStyle(this.canvas).fontSize);
    this.family = getComputedStyle(document.body).fontFamily;
    this.width = width;
    this.gutter = this.base * 0.62 * String(capacity).length + ADDRESS_SPACE;
    const wide = width - this.gutter - 2;
    let best = null;
    for (let perRow = this.unit; perRow <= Math.max(this.unit, capacity); perRow *= 2) {
      const rows = Math.ceil(capacity / perRow);
      const cell = { perRow, rows, w: wide / perRow, h: Math.min(room / rows, Math.max((1.6 * wide) / perRow, 14), 46) };
      cell.size = Math.min(cell.w, cell.h);
      if (!best || cell.size > best.size * 1.02) best = cell;
    }
    Object.assign(this, { perRow: best.perRow, rows: best.rows, w: best.w, h: best.h });
    this.layoutTable(wide);
  }

  layoutTable(wide) {
    const paged = this.recording.block_size > 0;
    this.entry = { w: Math.max(this.base * 1.7, Math.min(this.base * 2.8, wide / 8)), h: this.base * 2.1 };
    this.entriesPerRow = Math.max(1, Math.floor(wide / this.entry.w));
    const needed = Math.ceil(this.recording.longestTable / this.entriesPerRow);
    this.tableRows = paged ? Math.min(2, needed) : 1;
  }

  // Leave room for the tallest table of the memories side by side, so that all begin at one height.
  place(tableRows) {
    this.top = tableRows * this.entry.h + this.base * 1.9;
    this.height = Math.ceil(this.top + this.rows * this.h + 2);
  }

  // The rectangle of a run of slots that lies on one line.
  rect(slot, length = 1) {
    const x = this.gutter + (slot % this.perRow) * this.w;
    return [x, this.top + Math.floor(slot / this.perRow) * this.h, length * this.w, this.h];
  }

  // Cut a run at the ends of lines.
  *pieces(start, length) {
    let at = start;
    while (at < start + length) {
      const end = Math.min(start + length, (Math.floor(at / this.perRow) + 1) * this.perRow);
      yield [at, end - at];
      at = end;
    }
  }

  font(pen, size, weight) {
    pen.font = `${weight} ${Math.round(size * 10) / 10}px ${this.family}`;
  }

  draw(step, request) {
    const pen = prepare(this.canvas, this.width, this.height);
    pen.textBaseline = "middle";
    this.drawSlots(pen, step);
    this.drawLines(pen, step);
    this.drawLabels(pen, step);
    this.drawAddresses(pen);
    const stay = request === null ? undefined : this.recording.stayOf(request, step);
    if (stay) this.drawChosen(pen, stay, step);
    this.chosen = stay;
  }

  drawSlots(pen, step) {
    const { capacity, lost } = this.recording;
    const background = this.recording.blockedSteps.has(step) ? EXTERNAL : FREE;
    this.fill(pen, 0, capacity - lost, background, colours().lost);
    if (lost) this.fill(pen, capacity - lost, lost, EXTERNAL, colours().lost);
    for (const run of this.recording.runs(step)) {
      this.fill(pen, run.start, run.length, run.kind, run.kind === EXTERNAL ? colours().lost : requestColour(run.request));
    }
  }

  fill(pen, start, length, kind, hex) {
    pen.fillStyle = fillOf(pen, kind, hex);
    for (const [at, many] of this.pieces(start, length)) pen.fillRect(...this.rect(at, many));
  }

  // Thin lines between slots where there is room, stronger ones between blocks or round extents.
  drawLines(pen, step) {
    const { capacity, block_size: size } = this.recording;
    pen.lineWidth = 1;
    if (this.w >= 5 && this.h >= 10) this.rule(pen, 1, colours().grid);
    if (size && size * this.w >= 5) this.rule(pen, size, this.h >= 10 ? colours().strong : colours().grid);
    pen.strokeStyle = colours().strong;
    this.outline(pen, 0, capacity);
    if (size) return;
    pen.strokeStyle = colours().ink;
    pen.lineWidth = this.w >= 5 ? 2 : 1;
    for (const stay of this.recording.staysAt(step)) this.outline(pen, stay.start, stay.size);
  }

  rule(pen, every, colour) {
    const { capacity } = this.recording;
    pen.strokeStyle = colour;
    pen.beginPath();
    for (let row = 0; row < this.rows; row++) {
      const slots = Math.min(this.perRow, capacity - row * this.perRow);
      const y = this.top + row * this.h;
      for (let column = 0; column <= slots; column += every) {
        const x = this.gutter + column * this.w;
        pen.moveTo(x, y);
        pen.lineTo(x, y + this.h);
      }
      pen.moveTo(this.gutter, y);
      pen.lineTo(this.gutter + slots * this.w, y);
      pen.moveTo(this.gutter, y + this.h);
      pen.lineTo(this.gutter + slots * this.w, y + this.h);
    }
    pen.stroke();
  }

  // The edge of a run that may cover several lines.
  outline(pen, start, length) {
    const end = start + length;
    pen.beginPath();
    for (const [at, many] of this.pieces(start, length)) {
      const [x, y, w, h] = this.rect(at, many);
      this.segment(pen, x, y, x, y + h);
      this.segment(pen, x + w, y, x + w, y + h);
      this.edge(pen, at, many, start, end, -this.perRow, y);
      this.edge(pen, at, many, start, end, this.perRow, y + h);
    }
    pen.stroke();
  }

  // The part of a line's upper or lower edge beyond which the run does not go on.
  edge(pen, at, many, start, end, shift, y) {
    const from = Math.max(at, Math.min(at + many, start - shift));
    const to = Math.max(at, Math.min(at + many, end - shift));
    const open = to > from ? [[at, from], [to, at + many]] : [[at, at + many]];
    for (const [a, b] of open) {
      if (b > a) {
        const [x, , w] = this.rect(a, b - a);
        this.segment(pen, x, y, x + w, y);
      }
    }
  }

  segment(pen, x1, y1, x2, y2) {
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
  }

  // Numbers of requests, and of blocks where there is room for both.
  drawLabels(pen, step) {
    const { block_size: size, capacity } = this.recording;
    const chunk = size || 1;
    const [w, h] = [chunk * this.w, this.h];
    const large = Math.min(h * 0.62, this.base * 1.25);
    const tokens = (stay) => this.recording.tokensAt(stay, step);
    if (size && w >= this.base * 3 && h >= this.base * 1.1) {
      this.font(pen, this.base * 0.72, 400);
      pen.textAlign = "right";
      const { owner, kind } = this.recording.cells(step);
      for (let slot = 0; slot + size <= capacity; slot += size) {
        const last = slot + size - 1;
        const solid = kind[last] === USED && owner[last] >= 0;
        pen.fillStyle = solid ? inkOn(requestColour(owner[last])) : colours().muted;
        const [x, y] = this.rect(slot);
        this.halo(pen, solid ? null : colours().paper, shown(slot / size), x + w - 4, y + h * (h < this.base * 1.7 ? 0.53 : 0.76));
      }
    }
    for (const stay of this.recording.staysAt(step)) {
      if (stay.blocks) {
        if (w < large * 0.62 * String(stay.request).length + 2 || h < 11) continue;
        const table = this.recording.tableAt(stay, step);
        table.forEach((block, i) => this.label(pen, stay.request, block * size, w, large, i * size < tokens(stay)));
      } else if (this.h < this.base * 0.8) this.tag(pen, stay);
      else this.label(pen, stay.request, stay.start, this.w * 2, large, true);
    }
  }

  // A request's number at the beginning of its block or extent.
  label(pen, request, slot, room, size, solid) {
    const text = shown(request);
    const [x, y] = this.rect(slot);
    this.font(pen, size, 700);
    const wide = pen.measureText(text).width;
    if (wide + 2 > room) return;
    pen.textAlign = "left";
    pen.fillStyle = solid ? inkOn(requestColour(request)) : colours().ink;
    this.halo(pen, solid ? null : colours().paper, text, x + Math.max(2, Math.min(6, (this.w - wide) / 2)), y + this.h / 2 + 1);
  }

  // A request's number in the middle of an extent whose lines are too low for it.
  tag(pen, stay) {
    const [text, size] = [shown(stay.request), this.base * 1.1];
    const lines = [stay.start, stay.start + stay.size].map((slot) => this.top + (slot / this.perRow) * this.h);
    if (lines[1] - lines[0] < size) return;
    this.font(pen, size, 700);
    const wide = pen.measureText(text).width + size;
    const [x, y] = [this.gutter + (this.perRow * this.w - wide) / 2, (lines[0] + lines[1]) / 2];
    pen.fillStyle = requestColour(stay.request);
    pen.beginPath();
    pen.roundRect(x, y - size * 0.65, wide, size * 1.3, 4);
    pen.fill();
    pen.textAlign = "center";
    pen.fillStyle = inkOn(requestColour(stay.request));
    pen.fillText(text, x + wide / 2, y + 1);
  }

  halo(pen, paper, text, x, y) {
    if (paper) {
      pen.lineWidth = 3;
      pen.strokeStyle = paper;
      pen.lineJoin = "round";
      pen.strokeText(text, x, y);
    }
    pen.fillText(text, x, y);
  }

  // The number of the first slot of each line, or of every few.
  drawAddresses(pen) {
    const size = this.base * 0.78;
    this.font(pen, size, 400);
    pen.fillStyle = colours().muted;
    pen.textAlign = "right";
    const every = Math.max(1, Math.ceil((size * 1.25) / this.h));
    for (let row = 0; row < this.rows; row += every) {
      if (row && this.top + row * this.h + size > this.height) break;
      pen.fillText(shown(row * this.perRow), this.gutter - ADDRESS_SPACE / 2, this.top + row * this.h + Math.max(this.h, size) / 2);
    }
  }

  drawChosen(pen, stay, step) {
    const table = stay.blocks ? this.recording.tableAt(stay, step) : null;
    pen.strokeStyle = colours().ink;
    pen.lineWidth = Math.max(1, Math.min(3, this.h / 3));
    if (!table) {
      this.outline(pen, stay.start, stay.size);
      this.drawEntries(pen, [[say("ui.extent_is", { start: stay.start, size: stay.size }), stay.start, 1]], stay, this.base * 13);
      return;
    }
    const size = this.recording.block_size;
    const most = this.tableRows * this.entriesPerRow;
    const tokens = this.recording.tokensAt(stay, step);
    for (const block of table) if (size * this.w >= 5) this.outline(pen, block * size, size);
    const entries = table.map((block, i) => [shown(block), block * size, Math.min(1, (tokens - i * size) / size)]);
    this.drawEntries(pen, entries.slice(0, table.length > most ? most - 1 : most), stay, this.entry.w, table.length);
  }

  // Entries of the table, each with its logical block above, how full it is below, and an arrow to where it lies.
  drawEntries(pen, entries, stay, wide, all = entries.length) {
    const hex = requestColour(stay.request);
    const [perRow, h] = [this.entriesPerRow, this.entry.h];
    const place = (i) => [this.gutter + (i % perRow) * wide, Math.floor(i / perRow) * h];
    entries.forEach(([, slot], i) => this.arrow(pen, place(i), wide, h, slot));
    entries.forEach(([text, , full], i) => {
      const [x, y] = place(i);
      pen.fillStyle = colours().paper;
      pen.fillRect(x + 1, y + 1, wide - 2, h - 3);
      pen.fillStyle = hex;
      pen.fillRect(x + 1, y + h - 6, (wide - 2) * full, 4);
      pen.strokeStyle = hex;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, wide - 2, h - 3);
      pen.fillStyle = colours().ink;
      pen.textAlign = "center";
      this.font(pen, this.base, 700);
      pen.fillText(text, x + wide / 2, y + h * (stay.blocks ? 0.58 : 0.46), wide - 6);
      if (!stay.blocks) return;
      this.font(pen, this.base * 0.62, 400);
      pen.fillStyle = colours().muted;
      pen.textAlign = "left";
      pen.fillText(shown(i), x + 4, y + h * 0.22);
    });
    if (all > entries.length) {
      const [x, y] = place(entries.length);
      pen.fillStyle = colours().muted;
      pen.textAlign = "left";
      this.font(pen, this.base * 0.85, 400);
      pen.fillText(say("ui.more", { count: all - entries.length }), x + 4, y + h / 2);
    }
  }

  arrow(pen, [x, y], wide, h, slot) {
    const [from, to] = [[x + wide / 2, y + h - 3], this.target(slot)];
    const middle = (from[1] + to[1]) / 2;
    for (const [colour, width] of [[colours().paper, 5], [colours().ink, 1.8]]) {
      pen.strokeStyle = pen.fillStyle = colour;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(...from);
      pen.bezierCurveTo(from[0], middle + 8, to[0], Math.min(middle, to[1] - 14), to[0], to[1] - 6);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(to[0], to[1] + width);
      pen.lineTo(to[0] - 4 - width / 2, to[1] - 8 - width / 2);
      pen.lineTo(to[0] + 4 + width / 2, to[1] - 8 - width / 2);
      pen.fill();
    }
  }

  // Where an arrow ends: the upper edge of a block, or of an extent's first line.
  target(slot) {
    const size = this.recording.block_size || 1;
    const [x, y] = this.rect(slot);
    return [x + Math.min((size * this.w) / 2, (this.perRow * this.w) / 2), y];
  }

  // The slot under a point of the canvas, or -1.
  slotAt(x, y) {
    const [column, row] = [Math.floor((x - this.gutter) / this.w), Math.floor((y - this.top) / this.h)];
    if (column < 0 || column >= this.perRow || row < 0 || row >= this.rows) return -1;
    const slot = row * this.perRow + column;
    return slot < this.recording.capacity ? slot : -1;
  }
}

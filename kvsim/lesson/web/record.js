// A recording: stays, from which the state of any step follows without the steps before it.
const KINDS = ["used", "reserved", "internal", "external", "free"];
const [USED, RESERVED, INTERNAL, EXTERNAL, FREE] = [0, 1, 2, 3, 4];

// The last index at which a rising array is not above a value; -1 if there is none.
function lastNotAbove(rising, value) {
  let low = 0;
  let high = rising.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function summed(differences) {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}

class Recording {
  constructor(data, requests) {
    Object.assign(this, data);
    this.requests = requests;
    this.starts = summed(data.starts);
    this.ledgers = this.unpackLedgers(data.ledgers);
    this.blockedSteps = new Set(data.blocked);
    this.rejectedRequests = new Set(data.rejected);
    this.eventsAt = new Map();
    for (const [step, ...event] of data.events) {
      if (!this.eventsAt.has(step)) this.eventsAt.set(step, []);
      this.eventsAt.get(step).push(event);
    }
    this.stays = data.stays.map((row) => this.unpackStay(row)).sort((a, b) => a.request - b.request);
    this.longestTable = Math.max(1, ...this.stays.map((stay) => (stay.blocks ? stay.blocks.length : 1)));
    this.present = { step: -1, stays: [] };
  }

  get length() {
    return this.starts.length;
  }

  unpackStay(row) {
    const [request, first, end, finished, tokens, final, requested, start, size, blocks, taken] = row;
    const stay = { request, first, end: end < 0 ? Infinity : end, finished, tokens, final, requested, start, size };
    if (blocks) Object.assign(stay, { blocks, taken: summed(taken) });
    return stay;
  }

  unpackLedgers(differences) {
    const now = [0, 0, 0, 0, 0];
    return differences.map((row) => row.map((difference, i) => (now[i] += difference)));
  }

  // Stays that cover a step, by request.
  staysAt(step) {
    if (this.present.step !== step) {
      this.present = { step, stays: this.stays.filter((stay) => stay.first <= step && step < stay.end) };
    }
    return this.present.stays;
  }

  stayOf(request, step) {
    return this.staysAt(step).find((stay) => stay.request === request);
  }

  tokensAt(stay, step) {
    return Math.min(stay.final, stay.tokens + step - stay.first);
  }

  tableAt(stay, step) {
    return stay.blocks.slice(0, lastNotAbove(stay.taken, step) + 1);
  }

  // Logical slots at which one kind ends and the next begins: used, reserved, internal, external.
  edges(stay, step) {
    const held = stay.blocks ? this.tableAt(stay, step).length * this.block_size : stay.size;
    const requested = stay.requested || held;
    return [this.tokensAt(stay, step), Math.min(stay.final, requested), requested, held];
  }

  // Runs of slots of one request and kind: {start, length, kind, request}, in physical slots.
  runs(step) {
    const runs = [];
    for (const stay of this.staysAt(step)) {
      const edges = this.edges(stay, step);
      if (!stay.blocks) this.addRuns(runs, stay.request, edges, 0, stay.size, stay.start);
      else {
        this.tableAt(stay, step).forEach((block, i) => {
          this.addRuns(runs, stay.request, edges, i * this.block_size, this.block_size, block * this.block_size);
        });
      }
    }
    return runs;
  }

  addRuns(runs, request, edges, first, size, physical) {
    let from = first;
    for (let kind = USED; kind <= EXTERNAL; kind++) {
      const to = Math.min(edges[kind], first + size);
      if (to > from) {
        runs.push({ start: physical + from - first, length: to - from, kind, request });
        from = to;
      }
    }
  }

  // Owner (-1: nobody) and kind of every slot.
  cells(step) {
    const owner = new Int32Array(this.capacity).fill(-1);
    const kind = new Uint8Array(this.capacity).fill(this.blockedSteps.has(step) ? EXTERNAL : FREE);
    kind.fill(EXTERNAL, this.capacity - this.lost);
    for (const run of this.runs(step)) {
      owner.fill(run.request, run.start, run.start + run.length);
      kind.fill(run.kind, run.start, run.start + run.length);
    }
    return { owner, kind };
  }

  waiting(step) {
    const now = this.starts[step];
    const gone = new Set(this.rejectedRequests);
    for (const stay of this.stays) {
      if (stay.first <= step && (step < stay.end || stay.finished)) gone.add(stay.request);
    }
    const queue = [];
    for (let i = 0; i < this.requests.length && this.requests[i][0] <= now; i++) if (!gone.has(i)) queue.push(i);
    return queue;
  }
}

class Lesson {
  constructor(data) {
    Object.assign(this, data);
    this.systems = data.systems.map((system) => new Recording(system, data.requests));
    this.times = [...new Set(this.systems.flatMap((system) => system.starts))].sort((a, b) => a - b);
  }

  get last() {
    return this.times.length - 1;
  }

  frame(system, step) {
    return lastNotAbove(this.systems[system].starts, this.times[step]);
  }

  // The remark that holds at a step.
  remarkAt(step) {
    return lastNotAbove(this.stops.map((stop) => stop.step), step);
  }
}

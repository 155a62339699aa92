// The five shares: as a bar now, and as bands over the steps.
function drawBar(canvas, ledger) {
  const width = canvas.clientWidth;
  const height = Math.round(parseFloat(getComputedStyle(canvas).fontSize) * 1.7);
  const pen = prepare(canvas, width, height);
  const whole = ledger.reduce((sum, part) => sum + part, 0);
  let x = 0;
  ledger.forEach((part, kind) => {
    const wide = (part / whole) * width;
    pen.fillStyle = fillOf(pen, kind, kindColour(kind));
    pen.fillRect(x, 0, wide, height);
    x += wide;
  });
  pen.strokeStyle = colours().strong;
  pen.lineWidth = 1;
  pen.strokeRect(0.5, 0.5, width - 1, height - 1);
}

function drawSwatch(canvas, kind) {
  const size = Math.round(parseFloat(getComputedStyle(canvas).fontSize) * 1.1);
  canvas.style.width = `${size}px`;
  const pen = prepare(canvas, size, size);
  pen.fillStyle = fillOf(pen, kind, kindColour(kind));
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colours().strong;
  pen.strokeRect(0.5, 0.5, size - 1, size - 1);
}

// Bands are painted once, and again when size, theme or lesson change; only the line that marks now moves.
class Timeline {
  constructor(canvas, lesson, system) {
    Object.assign(this, { canvas, lesson, system });
    this.bands = document.createElement("canvas");
  }

  layout() {
    this.width = this.canvas.clientWidth;
    this.height = Math.round(parseFloat(getComputedStyle(this.canvas).fontSize) * 4);
    const pen = prepare(this.bands, this.width, this.height);
    const recording = this.lesson.systems[this.system];
    const steps = this.lesson.times.length;
    for (let column = 0; column < Math.min(steps, this.width); column++) {
      const step = steps <= this.width ? column : Math.floor((column * steps) / this.width);
      const from = steps <= this.width ? (column * this.width) / steps : column;
      const to = steps <= this.width ? ((column + 1) * this.width) / steps : column + 1;
      this.column(pen, recording.ledgers[this.lesson.frame(this.system, step)], from, to);
    }
    pen.strokeStyle = colours().strong;
    pen.strokeRect(0.5, 0.5, this.width - 1, this.height - 1);
  }

  column(pen, ledger, from, to) {
    const whole = ledger.reduce((sum, part) => sum + part, 0);
    let y = this.height;
    ledger.forEach((part, kind) => {
      const tall = (part / whole) * this.height;
      y -= tall;
      pen.fillStyle = fillOf(pen, kind, kindColour(kind));
      if (tall) pen.fillRect(from, y, to - from + 0.4, tall);
    });
  }

  draw(step) {
    const pen = prepare(this.canvas, this.width, this.height);
    pen.drawImage(this.bands, 0, 0, this.width, this.height);
    const x = ((step + 0.5) / this.lesson.times.length) * this.width;
    pen.strokeStyle = colours().paper;
    pen.lineWidth = 5;
    pen.strokeRect(x, -5, 0, this.height + 10);
    pen.strokeStyle = colours().ink;
    pen.lineWidth = 2;
    pen.strokeRect(x, -5, 0, this.height + 10);
  }

  stepAt(x) {
    const step = Math.floor((x / this.width) * this.lesson.times.length);
    return Math.max(0, Math.min(this.lesson.last, step));
  }
}

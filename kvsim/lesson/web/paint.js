// Colours and patterns. A request has a colour, a kind of slot a pattern: either can be told without the other.
const PALETTES = {
  light: ["#0072b2", "#e69f00", "#009e73", "#c2588f", "#3fa2da", "#d55e00", "#6f4fa0", "#8a7a00", "#9c5a2e", "#5d7180"],
  dark: ["#4aa8e8", "#f0b429", "#2fc295", "#e08fbd", "#8fd0f5", "#f2793a", "#b096e0", "#d6c84a", "#d19a6a", "#a9bccb"],
};
const THEMES = {
  light: { paper: "#ffffff", ink: "#16202a", muted: "#5a6875", grid: "#d5dce3", strong: "#7d8b99", lost: "#d55e00" },
  dark: { paper: "#151b22", ink: "#eef3f8", muted: "#9fb0c0", grid: "#303b47", strong: "#75869a", lost: "#f2793a" },
};

const paint = { theme: "light", patterns: new Map() };

function colours() {
  return THEMES[paint.theme];
}

function requestColour(request) {
  const palette = PALETTES[paint.theme];
  return palette[request % palette.length];
}

function kindColour(kind) {
  const palette = PALETTES[paint.theme];
  return [palette[0], palette[0], palette[1], colours().lost, colours().strong][kind];
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mixed(hex, share) {
  const [front, back] = [channels(hex), channels(colours().paper)];
  return `rgb(${front.map((value, i) => Math.round(share * value + (1 - share) * back[i])).join(",")})`;
}

// Black or white, whichever is read more easily on a colour.
function inkOn(hex) {
  const [r, g, b] = channels(hex).map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

// Slots of a kind in a colour: solid, hatched, dotted, crossed, or empty.
function fillOf(ctx, kind, hex) {
  if (kind === USED) return hex;
  if (kind === FREE) return colours().paper;
  const key = `${paint.theme}${kind}${hex}${devicePixelRatio}`;
  if (!paint.patterns.has(key)) paint.patterns.set(key, makePattern(ctx, kind, hex));
  return paint.patterns.get(key);
}

function makePattern(ctx, kind, hex) {
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size * devicePixelRatio;
  const pen = tile.getContext("2d");
  pen.scale(devicePixelRatio, devicePixelRatio);
  pen.fillStyle = mixed(hex, { [RESERVED]: 0.22, [INTERNAL]: 0.1, [EXTERNAL]: 0.12 }[kind]);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = pen.fillStyle = mixed(hex, kind === EXTERNAL ? 0.75 : 0.9);
  pen.lineWidth = kind === RESERVED ? 1.8 : 1.1;
  pen.beginPath();
  if (kind === INTERNAL) {
    for (const [x, y] of [[2, 2], [6, 6]]) pen.rect(x - 0.8, y - 0.8, 1.6, 1.6);
    pen.fill();
  } else {
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
      if (kind === EXTERNAL) {
        pen.moveTo(shift - 1, -1);
        pen.lineTo(shift + size + 1, size + 1);
      }
    }
    pen.stroke();
  }
  const pattern = ctx.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / devicePixelRatio));
  return pattern;
}

// Give a canvas its size in CSS pixels, sharp on any screen; returns its pen.
function prepare(canvas, width, height) {
  const [w, h] = [Math.round(width * devicePixelRatio), Math.round(height * devicePixelRatio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function fontOf(size, weight = 400) {
  return `${weight} ${Math.round(size * 10) / 10}px ${getComputedStyle(document.body).fontFamily}`;
}

// Phrases, digits and directions of the chosen language.
const RIGHT_TO_LEFT = ["fa"];
let language = "en";
let digits = new Intl.NumberFormat("en");

function setLanguage(code) {
  language = code;
  digits = new Intl.NumberFormat(code === "fa" ? "fa-IR" : "en");
  document.documentElement.lang = code;
  document.documentElement.dir = RIGHT_TO_LEFT.includes(code) ? "rtl" : "ltr";
}

function shown(value) {
  return typeof value === "number" ? digits.format(value) : String(value);
}

// A phrase with its values put in; a text that is no key stands for itself.
function say(key, values = {}) {
  const phrase = DATA.phrases[key];
  const text = phrase ? phrase[language] : key;
  const filled = text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? shown(values[name]) : whole));
  // digits after a Latin word would join it, and be read before it
  return RIGHT_TO_LEFT.includes(language) ? filled.replace(/([A-Za-z)])(?= [۰-۹])/g, "$1\u200f") : filled;
}

function sayEvent(event) {
  const [what, ...numbers] = event;
  let key = what;
  if (what === "evict" && (numbers[0] === numbers[1] || numbers[0] < 0)) key = "evict_self";
  else if (what === "evict" && numbers[2] > 0) key = "evict_some";
  if (key === "evict_self" && numbers[0] < 0) numbers[0] = numbers[1];
  return say("event." + key, Object.assign({}, numbers));
}

// Latin digits for what was typed in any of the languages.
function latin(text) {
  return text.replace(/[۰-۹]/g, (digit) => "۰۱۲۳۴۵۶۷۸۹".indexOf(digit)).replace(/[٠-٩]/g, (digit) => "٠١٢٣٤٥٦٧٨٩".indexOf(digit));
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

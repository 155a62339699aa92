// The page: what is chosen, the player, the keyboard, the address.
const $ = (id) => document.getElementById(id);
const SPEEDS = [0.5, 1, 2, 4, 8, 16, 30, 60];
const lessons = DATA.lessons.map((data) => new Lesson(data));
const quiz = new Quiz($("quiz"));
const page = { lesson: lessons[0], step: 0, panels: [], playing: false, speed: 2, hovered: null, chosen: null, view: "lesson" };

function clamp(step) {
  return Math.max(0, Math.min(page.lesson.last, step));
}

// The request whose table is shown: pointed at, else chosen, else the one that the remark is about.
function request() {
  if (page.hovered !== null) return page.hovered;
  if (page.chosen !== null) return page.chosen;
  const stop = page.lesson.stops[page.lesson.remarkAt(page.step)];
  return stop && stop.request >= 0 ? stop.request : null;
}

function draw() {
  const { lesson, step } = page;
  for (const panel of page.panels) panel.draw(step, request());
  $("slider").value = step;
  $("slider").setAttribute("aria-valuetext", say("ui.step", { step, last: lesson.last }));
  let where = say("ui.step", { step, last: lesson.last });
  if (!lesson.ticks) where += " · " + say("ui.seconds", { seconds: Math.round(lesson.times[step] / 1e7) / 100 });
  $("where").textContent = where;
  drawRemark();
}

function drawRemark() {
  const { lesson } = page;
  const at = lesson.remarkAt(page.step);
  const stop = lesson.stops[at];
  const key = `${lesson.name} ${at} ${language}`;
  if (key === page.remarkKey) return;
  page.remarkKey = key;
  $("remark").textContent = say(stop.say, stop.values);
  $("count").textContent = say("ui.remark", { i: at + 1, n: lesson.stops.length });
  $("previous").disabled = at === 0;
  $("next").disabled = at === lesson.stops.length - 1;
  $("ask").hidden = !(lesson.topic && at === lesson.stops.length - 1 && DATA.questions.length);
  $("ask").textContent = lesson.topic ? say("ui.go_on", { topic: say("quiz.topic_" + lesson.topic) }) : "";
}

function layout() {
  if (page.view !== "lesson") return;
  const room = Math.max(130, Math.min(460, innerHeight * (innerWidth < 700 ? 0.34 : 0.25)));
  const tallest = Math.max(...page.panels.map((panel) => panel.layout(room)));
  for (const panel of page.panels) panel.view.place(tallest);
  draw();
}

function openLesson(lesson, step = 0) {
  pause();
  Object.assign(page, { lesson, step: 0, hovered: null, chosen: null });
  page.step = clamp(step);
  page.panels = lesson.systems.map((_, system) => new Panel(lesson, system, { seek: seekByHand, hover, choose }));
  $("panels").replaceChildren(...page.panels.map((panel) => panel.node));
  $("panels").dataset.count = page.panels.length;
  $("slider").max = lesson.last;
  $("lessons").value = lesson.name;
  quiz.choose(lesson.topic);
  translate();
}

function hover(who) {
  page.hovered = who;
  draw();
}

function choose(who) {
  page.chosen = who === page.chosen ? null : who;
  draw();
}

function seek(step) {
  page.step = clamp(step);
  draw();
}

function seekByHand(step) {
  pause();
  seek(step);
  writeAddress();
}

function play() {
  if (page.step === page.lesson.last) seek(0);
  Object.assign(page, { playing: true, started: performance.now(), from: page.step });
  $("play").textContent = "❚❚";
  $("play").setAttribute("aria-label", say("ui.pause"));
  $("play").title = say("ui.pause");
  requestAnimationFrame(tick);
}

function pause() {
  if (page.playing) writeAddress();
  page.playing = false;
  $("play").textContent = "▶";
  $("play").setAttribute("aria-label", say("ui.play"));
  $("play").title = say("ui.play");
}

function tick(now) {
  if (!page.playing) return;
  const step = clamp(page.from + Math.floor(((now - page.started) / 1000) * page.speed));
  if (page.frames) page.frames.push(now);
  if (step > page.step) seek(step);
  if (step === page.lesson.last) {
    pause();
    writeAddress();
  } else requestAnimationFrame(tick);
}

function setSpeed(speed) {
  Object.assign(page, { speed, started: performance.now(), from: page.step });
  $("speed").value = speed;
}

function remark(shift) {
  const stop = page.lesson.stops[page.lesson.remarkAt(page.step) + shift];
  if (stop) {
    page.chosen = null;
    seekByHand(stop.step);
  }
}

function nextRequest(shift) {
  const here = [...new Set(page.lesson.systems.flatMap((s, i) => s.staysAt(page.lesson.frame(i, page.step)).map((stay) => stay.request)))];
  here.sort((a, b) => a - b);
  if (!here.length) return;
  const at = here.indexOf(request() === null ? here[0] : request());
  page.chosen = here[(at + shift + here.length) % here.length];
  draw();
}

// --- address: #t=120, with &lesson= where there are several, and &lang= ---

function writeAddress() {
  const parts = [`t=${page.step}`];
  if (lessons.length > 1) parts.push(`lesson=${encodeURIComponent(page.lesson.name)}`);
  if (language !== DATA.lang) parts.push(`lang=${language}`);
  if (page.view !== "lesson") parts.push(`view=${page.view}`);
  history.replaceState(null, "", "#" + parts.join("&"));
}

function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const code = address.get("lang");
  setLanguage(code in DATA.languages ? code : DATA.lang);
  const lesson = lessons.find((one) => one.name === address.get("lesson")) || lessons[0];
  openLesson(lesson, parseInt(address.get("t") || "0", 10) || 0);
  show(address.get("view") === "quiz" ? "quiz" : "lesson");
}

// --- language, theme, what is on show ---

function translate() {
  for (const node of document.querySelectorAll("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of document.querySelectorAll("[data-title]")) {
    node.title = say(node.dataset.title);
    node.setAttribute("aria-label", node.title);
  }
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", say(node.dataset.label));
  document.title = `${say(page.lesson.title)} · ${say("ui.title")}`;
  for (const option of $("lessons").options) option.textContent = say(lessons[option.index].title);
  $("title").textContent = lessons.length < 2 ? say(page.lesson.title) : say("ui.title");
  $("made").textContent = [page.lesson.ticks ? say("ui.one_tick") : "", say("ui.made_by", { version: DATA.version })].join(" ");
  page.remarkKey = "";
  for (const panel of page.panels) panel.translate();
  quiz.draw();
  layout();
}

function changeLanguage() {
  const codes = Object.keys(DATA.languages);
  setLanguage(codes[(codes.indexOf(language) + 1) % codes.length]);
  pause();
  translate();
  writeAddress();
}

function setTheme(theme) {
  paint.theme = theme;
  document.documentElement.dataset.theme = theme;
  for (const panel of page.panels) panel.queueKey = "";
  layout();
}

function show(view) {
  page.view = view;
  $("stage").hidden = view !== "lesson";
  $("quiz").hidden = view === "lesson";
  $("transport").hidden = view !== "lesson";
  $("switch").dataset.say = view === "lesson" ? "ui.questions" : "ui.picture";
  $("switch").textContent = say($("switch").dataset.say);
  if (view !== "lesson") pause();
  else layout();
}

function toggleView() {
  show(page.view === "lesson" ? "quiz" : "lesson");
  writeAddress();
  scrollTo(0, 0);
}

// --- keyboard ---

const KEYS = {
  " ": () => (page.playing ? pause() : play()),
  ArrowRight: () => seekByHand(page.step + 1),
  ArrowLeft: () => seekByHand(page.step - 1),
  PageDown: () => seekByHand(page.step + 10),
  PageUp: () => seekByHand(page.step - 10),
  Home: () => seekByHand(0),
  End: () => seekByHand(page.lesson.last),
  "+": () => setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, SPEEDS.indexOf(page.speed) + 1)]),
  "-": () => setSpeed(SPEEDS[Math.max(0, SPEEDS.indexOf(page.speed) - 1)]),
  n: () => remark(1),
  p: () => remark(-1),
  "]": () => nextRequest(1),
  "[": () => nextRequest(-1),
  d: () => setTheme(paint.theme === "dark" ? "light" : "dark"),
  l: changeLanguage,
  "?": () => ($("help").open ? $("help").close() : $("help").showModal()),
};
KEYS["="] = KEYS["+"];

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const tag = event.target.tagName;
  const typing = tag === "SELECT" || (tag === "INPUT" && event.target.type !== "range");
  const own = event.target.id === "slider" && /^(Arrow|Page|Home|End)/.test(event.key);
  const clicking = (tag === "BUTTON" || tag === "SUMMARY") && event.key === " ";
  const act = KEYS[event.key];
  if (!act || typing || own || clicking) return;
  if (page.view !== "lesson" && !"dl?".includes(event.key)) return;
  event.preventDefault();
  act();
}

function listen() {
  $("play").addEventListener("click", KEYS[" "]);
  $("forward").addEventListener("click", KEYS.ArrowRight);
  $("back").addEventListener("click", KEYS.ArrowLeft);
  $("start").addEventListener("click", KEYS.Home);
  $("end").addEventListener("click", KEYS.End);
  $("next").addEventListener("click", KEYS.n);
  $("previous").addEventListener("click", KEYS.p);
  $("slider").addEventListener("input", () => seekByHand(Number($("slider").value)));
  $("speed").addEventListener("change", () => setSpeed(Number($("speed").value)));
  $("lessons").addEventListener("change", () => {
    openLesson(lessons[$("lessons").selectedIndex]);
    show("lesson");
    writeAddress();
  });
  $("switch").addEventListener("click", toggleView);
  $("ask").addEventListener("click", toggleView);
  $("language").addEventListener("click", changeLanguage);
  $("theme").addEventListener("click", KEYS.d);
  $("keys").addEventListener("click", KEYS["?"]);
  $("close").addEventListener("click", () => $("help").close());
  addEventListener("keydown", pressed);
  addEventListener("hashchange", readAddress);
  new ResizeObserver(layout).observe($("panels"));
}

function start() {
  for (const lesson of lessons) $("lessons").append(new Option(lesson.title, lesson.name));
  $("lessons").hidden = lessons.length < 2;
  $("switch").hidden = !DATA.questions.length;
  for (const speed of SPEEDS) $("speed").append(new Option(`${speed}×`, speed));
  $("speed").value = page.speed;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  paint.theme = document.documentElement.dataset.theme = dark ? "dark" : "light";
  listen();
  readAddress();
  window.lesson = { page, lessons, seek: seekByHand, play, pause, setSpeed };
}

start();

// Questions with one answer, made beforehand by kvsim.quiz.
class Quiz {
  constructor(node) {
    this.node = node;
    this.topic = DATA.questions.length ? DATA.questions[0].topic : "";
    this.at = {};
  }

  get topics() {
    return [...new Set(DATA.questions.map((question) => question.topic))];
  }

  choose(topic) {
    if (this.topics.includes(topic)) this.topic = topic;
  }

  get question() {
    const questions = DATA.questions.filter((question) => question.topic === this.topic);
    return questions[(this.at[this.topic] || 0) % questions.length];
  }

  draw() {
    if (!this.topics.length) return;
    const bar = element("div", "topics");
    const label = bar.appendChild(element("label", "", say("ui.topic") + " "));
    const select = label.appendChild(element("select"));
    select.id = "topic";
    for (const topic of this.topics) {
      const option = select.appendChild(element("option", "", say("quiz.topic_" + topic)));
      option.value = topic;
      option.selected = topic === this.topic;
    }
    select.addEventListener("change", () => {
      this.topic = select.value;
      this.draw();
    });
    const another = bar.appendChild(element("button", "", say("ui.another")));
    another.id = "another";
    another.addEventListener("click", () => {
      this.at[this.topic] = (this.at[this.topic] || 0) + 1;
      this.draw();
    });
    this.node.replaceChildren(bar, this.card(this.question));
  }

  card(question) {
    const card = element("article", "question");
    card.dataset.answer = question.answer.join(" ");
    const [first, ...rest] = question.lines[language];
    card.append(element("p", "", first));
    if (question.picture) card.append(element("pre", "", question.picture));
    card.append(...rest.map((line) => element("p", "", line)), this.form(question), this.working(question));
    card.append(element("p", "seed", `kvsim quiz ${question.topic} --seed ${question.seed}`));
    return card;
  }

  form(question) {
    const form = element("form");
    const label = form.appendChild(element("label", "", say("ui.answer") + " "));
    const input = label.appendChild(element("input"));
    input.autocomplete = "off";
    form.append(element("button", "", say("ui.check")));
    const verdict = form.appendChild(element("output"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const right = this.isRight(question, input.value);
      verdict.textContent = say(right ? "ui.right" : "ui.wrong");
      verdict.className = right ? "right" : "wrong";
    });
    return form;
  }

  isRight(question, typed) {
    const words = latin(typed).trim().toLowerCase();
    if (!question.answer.length) return Object.values(DATA.phrases["quiz.none"]).includes(words) || words === "-";
    // a comma or a dot between three digits groups thousands; any other sets numbers apart
    const numbers = words.replace(/(\d)[,٬.](?=\d{3}(?!\d))/g, "$1").match(/\d+/g) || [];
    return numbers.map(Number).join(" ") === question.answer.join(" ");
  }

  working(question) {
    const details = element("details");
    details.append(element("summary", "", say("ui.show_answer")), element("p", "answer", question.written[language]));
    details.append(...question.working[language].map((line) => element("p", "", line)));
    return details;
  }
}

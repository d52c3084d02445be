import { element, fill } from "../dom.js";

/** The profiles that quantize, to choose from. They stay in the catalog's order, the first chosen one is the reference. */
export class ProfilePicker {
  #chosen;
  #onChange;
  node;
  #list = element("div", { class: "chips" });
  #titles = element("dl", { class: "profile-titles" });
  #offered = [];

  /**
   * @param {string[]} chosen names, of which the list may offer a part
   * @param {function(string[], string, boolean): void} onChange called with the chosen names, the one that changed, and its new state
   * @param {string} title what the list offers
   */
  constructor(chosen, onChange, title = "Profiles") {
    this.#chosen = chosen;
    this.#onChange = onChange;
    this.node = element("fieldset", { class: "profiles" }, element("legend", { class: "unseen" }, title));
    this.node.append(this.#list, this.#titles);
  }

  /** Show the catalog's entries. */
  offer(profiles) {
    this.#offered = profiles;
    this.#showTitles();
    fill(
      this.#list,
      profiles.map((profile) =>
        element(
          "label",
          { class: "chip", title: profile.title },
          element("input", {
            type: "checkbox",
            name: "profile",
            value: profile.name,
            checked: this.#chosen.includes(profile.name),
            onchange: (event) => this.#toggle(profile.name, event.target.checked),
          }),
          element("span", {}, profile.label ?? profile.name),
        ),
      ),
    );
  }

  #toggle(name, chosen) {
    this.#chosen = this.#chosen.filter((each) => each !== name);
    if (chosen) this.#chosen.push(name);
    this.#showTitles();
    this.#onChange(this.#chosen, name, chosen);
  }

  /** Say what the names stand for, of those chosen. */
  #showTitles() {
    const named = this.#chosen.map((name) => this.#offered.find((each) => each.name === name)).filter((each) => each?.title);
    fill(
      this.#titles,
      named.map(({ name, label, title }) => element("div", {}, element("dt", {}, label ?? name), element("dd", {}, title))),
    );
  }
}

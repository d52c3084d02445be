import { element, field, fill } from "../dom.js";

/** The field for a token, shown when the service asks for one. The token is kept in memory only. */
export class TokenForm {
  #root;
  #asking = null;

  constructor(root) {
    this.#root = root;
  }

  /** Return the token that the person enters. Several requests wait for the same one. */
  ask(refused) {
    this.#asking ??= new Promise((resolve) => this.#show(refused, resolve));
    return this.#asking;
  }

  #show(refused, resolve) {
    const input = element("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const send = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      this.#asking = null;
      fill(this.#root);
      resolve(input.value.trim());
    };
    fill(
      this.#root,
      element(
        "form",
        { class: "notice", onsubmit: send },
        element("p", { role: "alert" }, refused ? "The service refused this token." : "This service asks for a token."),
        field("Token", input, "Kept in this tab’s memory until it is closed or reloaded."),
        element("button", { type: "submit", class: "primary" }, "Use token"),
      ),
    );
    input.focus();
  }
}

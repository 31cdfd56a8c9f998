/* What can be named behind a `/` besides Forge's own commands: tools, servers, and the prompts of servers.

   Tools and servers the events tell. Prompts are asked for when a command is typed, and again once a server has
   changed: nobody pays for them who types none. */

export class KnownNames {
  /** @type {any[]} `{name, description, fields}` */
  prompts = [];
  #stale = true;

  /** @param {any} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.close = ctx.store.subscribe((/** @type {any} */ change) => {
      if (change.what === "reset" || (change.what === "standing" && change.part === "servers")) this.#stale = true;
    });
  }

  /** @returns {any[]} those a person may run */
  get tools() {
    return this.ctx.store.standing.tools;
  }

  /** @returns {string[]} */
  get servers() {
    return [...this.ctx.store.standing.servers.keys()];
  }

  /** @returns {Promise<boolean>} whether there is something new to offer */
  async look() {
    const { api, session } = this.ctx;
    if (!this.#stale || !session.answerable) return false;
    this.#stale = false;
    try {
      this.prompts = (await api.get(api.path`/api/sessions/${session.id}/prompts`)).prompts ?? [];
    } catch {
      this.#stale = true; // the next letter asks again
      return false;
    }
    return this.prompts.length > 0;
  }
}

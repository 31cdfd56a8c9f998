/* What the session may use and which approval mode is in force: no event says it, so it is asked for when something was
   used or the mode was switched, and never more often than every few seconds. */

const EVERY_MS = 3000;

export class Budget {
  /** @type {{unit: string, allowed: number, used: number}[]} those with a limit */
  rows = [];
  mode = "";
  #timer = 0;
  #askedAt = 0;

  /** @param {any} ctx @param {() => void} changed */
  constructor(ctx, changed) {
    this.ctx = ctx;
    this.told = changed;
  }

  /** @param {any} change */
  changed(change) {
    const { store } = this.ctx;
    if (!store.caughtUp || !this.#isRunning || this.#timer) return;
    const part = change.what === "standing" ? change.part : "";
    const used = change.what === "caughtUp" || part === "session" || part === "usage";
    const switched = change.what === "item" && change.fresh && store.items.get(change.key)?.code === "APPROVAL_MODE";
    if (!used && !switched) return;
    this.#timer = window.setTimeout(
      () => this.#ask(),
      switched ? 0 : Math.max(0, this.#askedAt + EVERY_MS - Date.now()),
    );
  }

  /** Before a session has begun, and when it is over, nobody knows. */
  get #isRunning() {
    const { store, session } = this.ctx;
    return session.answerable && store.standing.session !== null && !store.standing.ended;
  }

  close() {
    clearTimeout(this.#timer);
  }

  async #ask() {
    this.#timer = 0;
    this.#askedAt = Date.now();
    if (!this.#isRunning) return;
    const { api, session } = this.ctx;
    try {
      const settings = await api.get(api.path`/api/sessions/${session.id}/settings`);
      this.rows = settings.budget.filter((/** @type {any} */ one) => one.allowed > 0);
      this.mode = settings.approvalMode;
      this.told();
    } catch {
      /* the session ended meanwhile, or the server is away: what was known stays */
    }
  }
}

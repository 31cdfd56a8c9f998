/* The desk: which session is open and which area of it is shown. Owns the frame around the areas (frame.js).

   The conversation stays mounted while another area is looked at, so that drafts and open cards stay as they are;
   the other areas are loaded when they are first opened and left when they are left. */

import { el, h, part, replace } from "./dom.js";
import { Frame } from "./frame.js";
import { OpenSession } from "./open_session.js";
import { address, route } from "./router.js";

/** @type {Record<string, () => Promise<{page: (ctx: any, params: string[]) => any}>>} */
const PAGES = {
  tools: () => import("./pages/tools.js"),
  sessions: () => import("./pages/sessions.js"),
  settings: () => import("./pages/settings.js"),
  replay: () => import("./pages/replay.js"),
  inbox: () => import("./pages/inbox.js"),
  people: () => import("./pages/people.js"),
};

export class Desk {
  /** @type {OpenSession | null} */
  open = null;
  /** @type {any} the page that is shown, unless it is the conversation */
  #page = null;
  #turn = 0;

  /** @param {any} me what `/api/me` said */
  constructor(me) {
    this.me = me;
    this.main = part("main");
    this.frame = new Frame(this);
  }

  start() {
    window.addEventListener("hashchange", () => this.#show());
    this.#show();
  }

  /** A new link was opened here: the page goes on where it was. @param {string} refused why the link was of no use */
  async signedIn(refused) {
    const { open } = this;
    if (open?.link.state === "here") return;
    if (refused) return this.frame.lost(0, refused);
    if (open) open.link.again();
    else location.reload();
  }

  /** @param {string} where an area of this session, or an address that begins with `#/` */
  go(where) {
    location.hash = where.startsWith("#/") ? where : address(where, this.open?.id ?? this.me.current ?? "");
  }

  get area() { return route(location.hash, this.open?.id ?? this.me.current ?? "").area; }

  async #show() {
    const turn = ++this.#turn;
    const wanted = route(location.hash, this.open?.id ?? this.me.current ?? "");
    if (wanted.session && wanted.session !== this.open?.id) this.#enter(wanted.session);
    this.#leavePage();
    this.frame.shows(wanted.area);
    if (wanted.area === "chat" && this.open) {
      replace(this.main, this.open.chat.node);
      this.open.chat.shown();
      return;
    }
    this.open?.chat.hidden();
    replace(this.main, el("p.starting", "Loading…"));
    const page = await this.#made(wanted);
    if (turn !== this.#turn) {
      page.leave?.();
      return;
    }
    this.#page = page;
    replace(this.main, page.node);
    this.frame.panel.beside(page.beside ?? null);
    this.frame.title(page.title ?? "");
    if (document.activeElement === document.body) this.main.focus({ preventScroll: true });
  }

  async #made(wanted) {
    try {
      const { page } = await PAGES[wanted.area]();
      return page(this.open?.ctx ?? OpenSession.contextWithout(this), wanted.params);
    } catch (failure) {
      console.error(failure);
      return { node: h("p.starting", { role: "alert" }, "This area could not be loaded. Reload the page."), title: "" };
    }
  }

  #enter(session) {
    this.open?.close();
    this.open = new OpenSession(this, session, (change) => this.#page?.update?.(change));
    this.frame.opened(this.open);
  }

  #leavePage() {
    this.#page?.leave?.();
    this.#page = null;
    this.frame.panel.beside(null);
    this.frame.title("");
  }
}

/* The window over the feed's items, by their keys: at most 300 of them stand in the page. Arithmetic only. */

const MOST = 300;
/** Of a session that is opened: several screens, so that it is there soon. The rest comes when somebody scrolls up. */
const FIRST = 60;
/** So many come at once when somebody scrolls to an end of the window. */
export const STEP = 100;

export class FeedWindow {
  /** @type {string[]} everything that may be shown, in order */
  #keys = [];
  #from = 0;
  #to = 0;

  get shown() {
    return this.#keys.slice(this.#from, this.#to);
  }

  /** @returns {string | undefined} */
  get last() {
    return this.#keys[this.#to - 1];
  }

  get isAtStart() {
    return this.#from === 0;
  }

  get isAtEnd() {
    return this.#to >= this.#keys.length;
  }

  /** @param {string} key */
  has(key) {
    return this.#keys.includes(key);
  }

  /**
   * Other keys; the window holds the same ones as before wherever they still are.
   * @param {string[]} keys
   * @param {boolean} follow whether it ends with the last one, whatever it held
   */
  rearrange(keys, follow) {
    const [first, atEnd] = [this.#keys[this.#from], this.isAtEnd];
    const length = this.#to - this.#from;
    this.#keys = keys;
    if (follow || first === undefined) {
      const kept = first === undefined ? -1 : this.#keys.indexOf(first);
      this.#to = this.#keys.length;
      this.#from = kept < 0 ? Math.max(0, this.#to - FIRST) : Math.max(kept, this.#to - MOST);
    } else {
      const at = this.#keys.indexOf(first);
      this.#from = at < 0 ? Math.max(0, Math.min(this.#from, this.#keys.length - MOST)) : at;
      const wanted = atEnd ? this.#keys.length : this.#from + length;
      this.#to = Math.min(wanted, this.#from + MOST, this.#keys.length);
    }
  }

  /** Up (below 0) or down; what it grows by at one end beyond the most, it loses at the other. @param {number} by */
  slide(by) {
    if (by < 0) {
      this.#from = Math.max(0, this.#from + by);
      this.#to = Math.min(this.#to, this.#from + MOST);
    } else {
      this.#to = Math.min(this.#keys.length, this.#to + by);
      this.#from = Math.max(this.#from, this.#to - MOST);
    }
  }

  /** Whether it had to move. */
  toEnd() {
    if (this.isAtEnd) return false;
    this.#to = this.#keys.length;
    this.#from = Math.max(0, this.#to - MOST);
    return true;
  }

  /** Whether it had to move. @param {string} key one that it `has` */
  include(key) {
    const at = this.#keys.indexOf(key);
    if (at >= this.#from && at < this.#to) return false;
    this.#from = Math.max(0, Math.min(at - STEP, this.#keys.length - MOST));
    this.#to = Math.min(this.#keys.length, this.#from + MOST);
    return true;
  }
}

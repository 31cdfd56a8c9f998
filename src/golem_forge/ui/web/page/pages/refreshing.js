/* Loading again what may have changed: at most one request at a time, soon after the last change, and not after the page
   was left. An answer that a later one has overtaken is dropped. */

const SOON_MS = 300;

/** @template T @param {() => Promise<T>} load @param {(answer: T) => void} draw @param {(failure: any) => void} failed */
export const refreshed = (load, draw, failed) => {
  let timer = 0;
  let turn = 0;
  let left = false;
  const now = async () => {
    clearTimeout(timer);
    timer = 0;
    const mine = ++turn;
    try {
      const answer = await load();
      if (!left && mine === turn) draw(answer);
    } catch (failure) {
      if (!left && mine === turn) failed(failure);
    }
  };
  return {
    now,
    soon: () => {
      if (!left) timer ||= window.setTimeout(now, SOON_MS);
    },
    leave: () => {
      left = true;
      clearTimeout(timer);
    },
  };
};

/* JSON in which no number changes: one that JavaScript cannot hold exactly is kept as it was written.

   Threat: 12345678901234567890 would come back from an edit as another number, and nobody would have changed it.
   Where the browser cannot keep such a number the text is refused with words, never rounded. */

const INTEGER = /^[+-]?\d{1,1000}$/;
const NUMBER = /^[+-]?(?:\d{1,400}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?$/;
const CANNOT = "this browser cannot hold this number exactly; use fewer digits";

/** Whether a text is a number as a person may write it. @param {string} text */
export const isNumber = (text) => NUMBER.test(text);

/** The number a text stands for, exactly. Throws where it cannot be. @param {string} text */
export const exactNumber = (text) => {
  const value = Number(text);
  if (!INTEGER.test(text) || Number.isSafeInteger(value)) return value;
  return kept(text);
};

/** @param {string} text */
const kept = (text) => {
  if (!JSON.rawJSON) throw new RangeError(CANNOT);
  return JSON.rawJSON(BigInt(text).toString());
};

/** Parsed, with such numbers kept as written. Throws SyntaxError or RangeError. @param {string} text */
export const parseExactly = (text) =>
  JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? "";
    if (!Number.isFinite(value)) throw new RangeError("a finite number is needed");
    return INTEGER.test(source) ? kept(source) : value;
  });

/** The text of a number, however it is kept. @param {any} value */
export const numberText = (value) =>
  JSON.isRawJSON?.(value) ? value.rawJSON : typeof value === "number" ? String(value) : "";

/** Indented JSON of anything that came as JSON. @param {any} value */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

/** Equal as JSON values are: members in any order. @param {any} one @param {any} other @returns {boolean} */
export const equalJson = (one, other) => {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && equalJson(one[name], other[name]))
  );
};

/* What a filled form submits: field values → arguments, as `tools/forms.py` makes them (a test holds the two
   together).

   Empty optional fields are left out (`undefined`), an empty field that may be null sends null, fixed values are
   always sent. Nothing is checked here: the full schema is checked where the call is made. Threat: names are a
   tool's or a server's. A field called `__proto__` or `constructor` is a name like any other, so values are read as
   own members only and objects are made of entries. */

/* JSON in which no number changes: one that JavaScript cannot hold exactly is kept as it was written.

   Threat: 12345678901234567890 would come back from an edit as another number, and nobody would have changed it.
   Where the browser cannot keep such a number the text is refused with words, never rounded. */
const INTEGER = /^[+-]?\d{1,1000}$/;
const NUMBER = /^[+-]?(?:\d{1,400}(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?$/;
const CANNOT = "this browser cannot hold this number exactly; use fewer digits";

/** Whether a text is a number as a person may write it. */
export const isNumber = (text) => NUMBER.test(text);

/** The number a text stands for, exactly. Throws where it cannot be. */
export const exactNumber = (text) => {
  const value = Number(text);
  if (!INTEGER.test(text) || Number.isSafeInteger(value)) return value;
  return kept(text);
};

const kept = (text) => {
  if (!JSON.rawJSON) throw new RangeError(CANNOT);
  return JSON.rawJSON(BigInt(text).toString());
};

/** Parsed, with such numbers kept as written. Throws SyntaxError or RangeError. */
export const parseExactly = (text) =>
  JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? "";
    if (!Number.isFinite(value)) throw new RangeError("a finite number is needed");
    return INTEGER.test(source) ? kept(source) : value;
  });

/** The text of a number, however it is kept. */
export const numberText = (value) =>
  JSON.isRawJSON?.(value) ? value.rawJSON : typeof value === "number" ? String(value) : "";

/** Indented JSON of anything that came as JSON. */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

/** Equal as JSON values are: members in any order. */
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

/** @typedef {{name: string, label: string, type: string, required: boolean, description?: string, default?: any,
 * nullable?: boolean, error?: string, options?: {value: any, label: string}[], min?: number, max?: number,
 * step?: number, pattern?: string, format?: string, fields?: Field[], item?: Field, variants?: Field[]}} Field */

/** Types of which an empty text is a value where one is required. */
const MAY_BE_EMPTY_TEXT = new Set(["text", "secret", "json", "variants", "select"]);

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !JSON.isRawJSON?.(value);

/** An own member; `undefined` where there is none. */
export const own = (values, name) => (isObject(values) && Object.hasOwn(values, name) ? values[name] : undefined);

/** @param {Field[]} fields
 * @param {Record<string, any>} values by field name; a missing name is a field left empty, others are dropped
 * @returns {Record<string, any>} */
export const formArguments = (fields, values) =>
  Object.fromEntries(
    fields.map((field) => [field.name, submitted(field, own(values, field.name))])
      .filter(([, value]) => value !== undefined),
  );

/** What one field sends; `undefined`: it is left out. */
export const submitted = (field, value) => {
  if (field.type === "fixed") return field.default;
  if (field.type === "group" && (isObject(value) || (field.required && value === undefined)))
    return formArguments(field.fields ?? [], isObject(value) ? value : {});
  if (isEmpty(field, value)) return mayBeNull(field) ? null : undefined;
  if (field.type === "list" && Array.isArray(value))
    return value.map((item) => {
      const sent = submitted(field.item, item);
      return sent === undefined ? item : sent;
    });
  return value;
};

const isEmpty = (field, value) =>
  value === undefined || value === null || (value === "" && !(field.required && MAY_BE_EMPTY_TEXT.has(field.type)));

export const mayBeNull = (field) =>
  Boolean(field.nullable) || (Object.hasOwn(field, "default") && field.default === null);

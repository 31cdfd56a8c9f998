/* What a filled form submits: field values → arguments, as `tools/forms.py` makes them (a test holds the two
   together).

   Empty optional fields are left out (`undefined`), an empty field that may be null sends null, fixed values are
   always sent. Nothing is checked here: the full schema is checked where the call is made. Threat: names are a
   tool's or a server's. A field called `__proto__` or `constructor` is a name like any other, so values are read as
   own members only and objects are made of entries. */

/**
 * @typedef {{name: string, label: string, type: string, required: boolean, description?: string, default?: any,
 *   nullable?: boolean, error?: string, options?: {value: any, label: string}[], min?: number, max?: number,
 *   step?: number, pattern?: string, format?: string, fields?: Field[], item?: Field, variants?: Field[]}} Field
 */

/** Types of which an empty text is a value where one is required. */
const MAY_BE_EMPTY_TEXT = new Set(["text", "secret", "json", "variants", "select"]);

/** @param {any} value */
export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !JSON.isRawJSON?.(value);

/** An own member; `undefined` where there is none. @param {any} values @param {string} name */
export const own = (values, name) => (isObject(values) && Object.hasOwn(values, name) ? values[name] : undefined);

/**
 * @param {Field[]} fields
 * @param {Record<string, any>} values by field name; a missing name is a field left empty, others are dropped
 * @returns {Record<string, any>}
 */
export const formArguments = (fields, values) =>
  Object.fromEntries(
    fields
      .map((field) => [field.name, submitted(field, own(values, field.name))])
      .filter(([, value]) => value !== undefined),
  );

/** What one field sends; `undefined`: it is left out. @param {Field} field @param {any} value */
export const submitted = (field, value) => {
  if (field.type === "fixed") return field.default;
  if (field.type === "group" && (isObject(value) || (field.required && value === undefined)))
    return formArguments(field.fields ?? [], isObject(value) ? value : {});
  if (isEmpty(field, value)) return mayBeNull(field) ? null : undefined;
  if (field.type === "list" && Array.isArray(value))
    return value.map((item) => {
      const sent = submitted(/** @type {Field} */ (field.item), item);
      return sent === undefined ? item : sent;
    });
  return value;
};

/** @param {Field} field @param {any} value */
const isEmpty = (field, value) =>
  value === undefined || value === null || (value === "" && !(field.required && MAY_BE_EMPTY_TEXT.has(field.type)));

/** @param {Field} field */
export const mayBeNull = (field) =>
  Boolean(field.nullable) || (Object.hasOwn(field, "default") && field.default === null);

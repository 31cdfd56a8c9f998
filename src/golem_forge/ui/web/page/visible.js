/* Makes text safe to show, as `core/text.py` does: a character that could steer or hide words becomes its escape.

   Threat: bidi overrides, zero-width and tag characters in an argument or a file name make a page show something
   other than what will run. `visible` is for what is decided upon or named; `visibleProse` for answers and people's
   own words, where a joiner between two emoji makes them one picture. A test holds both against the Python
   functions. */

const UNSAFE =
  "[\\u{0}-\\u{8}\\u{b}-\\u{1f}\\u{7f}-\\u{9f}" + // C0 without tab and newline, DEL, C1
  "\\u{61c}\\u{200e}\\u{200f}\\u{202a}-\\u{202e}\\u{2066}-\\u{2069}" + // bidi controls
  "\\u{ad}\\u{34f}\\u{115f}\\u{1160}\\u{17b4}\\u{17b5}\\u{180b}-\\u{180f}\\u{200b}-\\u{200d}" + // no shape
  "\\u{2028}\\u{2029}" +
  "\\u{2060}-\\u{2065}\\u{206a}-\\u{206f}\\u{3164}\\u{feff}\\u{ffa0}" +
  "\\u{fff9}-\\u{fffb}\\u{d800}-\\u{dfff}" + // annotations, lone surrogates
  "\\u{13430}-\\u{1343f}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}" + // formatting of hieroglyphs, shorthand, music
  "\\u{fe00}-\\u{fe0e}\\u{e0000}-\\u{e0fff}]" + // variation selectors, tags: any number is no wider than none
  // the last selector is common: it makes a picture of the symbol before it, or a key of what stands before U+20E3
  "|(?<![\\u{a9}\\u{ae}\\u{203c}\\u{2049}\\u{2122}\\u{2139}\\u{2190}-\\u{21ff}\\u{2300}-\\u{23ff}\\u{2460}-\\u{24ff}" +
  "\\u{25a0}-\\u{27bf}\\u{2900}-\\u{297f}\\u{2b00}-\\u{2bff}\\u{3030}\\u{303d}" +
  "\\u{3297}\\u{3299}\\u{1f000}-\\u{1faff}])" +
  "\\u{fe0f}(?!\\u{20e3})";
const PICTURE = "\\u{2194}-\\u{2199}\\u{2600}-\\u{27bf}\\u{2b1b}\\u{2b1c}\\u{1f000}-\\u{1faff}";
const unsafe = new RegExp(UNSAFE, "gu");
const unsafeInProse = new RegExp(
  `(?:(?<=[${PICTURE}])|(?<=[${PICTURE}]\\u{fe0f}))(\\u{200d})(?=[${PICTURE}])|${UNSAFE}`,
  "gu",
);
const harmless = /^[\t\n\x20-\x7e]*$/;

const escape = (character) => {
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
};

const words = (value) => typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);

export const visible = (value) => {
  const text = words(value);
  return harmless.test(text) ? text : text.replace(unsafe, escape);
};

/** `visible`, but for the joiners inside emoji. */
export const visibleProse = (value) => {
  const text = words(value);
  return harmless.test(text) ? text : text.replace(unsafeInProse, (found, joiner) => joiner ?? escape(found));
};

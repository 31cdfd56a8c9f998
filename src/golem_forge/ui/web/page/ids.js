/* Names for what this page asks for, so that it knows again what comes of it. */

/** 128 random bits; `crypto.randomUUID` is missing where the page is not reached by loopback or https. */
export const randomId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

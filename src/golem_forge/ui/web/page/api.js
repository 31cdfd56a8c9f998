/* Requests to our own server. Gives parsed JSON, or throws a Failure with what the server said about it.

   Paths are ours and begin with `/api/`; parts that come from elsewhere go through `path`, which encodes them. */

/* Names for what this page asks for, so that it knows again what comes of it. */
/** 128 random bits; `crypto.randomUUID` is missing where the page is not reached by loopback or https. */
export const randomId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class Failure extends Error {
  /**
   * @param {number} status 0: the server was not reached @param {string} problem @param {Record<string, string>} fields
   */
  constructor(status, problem, fields = {}) {
    super(problem);
    this.status = status;
    this.problem = problem;
    this.fields = fields;
  }
}

/** path`/api/sessions/${id}/events` with every value encoded. */
export const path = (fixed, ...values) =>
  fixed.reduce(
    (whole, part, index) => whole + part + (index < values.length ? encodeURIComponent(String(values[index])) : ""),
    "",
  );

/** @param {AbortSignal} [signal] */
const request = async (method, where, body, type = "application/json", signal) => {
  let response;
  try {
    response = await fetch(where, {
      method,
      body,
      headers: body === undefined ? {} : { "Content-Type": type },
      credentials: "same-origin",
      redirect: "error",
      signal,
    });
  } catch {
    throw new Failure(0, "The server does not answer. Is the session that serves this page still running?");
  }
  const said = await response.text();
  const answer = parsed(said);
  if (response.ok) return answer;
  throw new Failure(
    response.status,
    answer?.problem || `Refused with status ${response.status}.`,
    answer?.fields ?? {},
  );
};

const parsed = (said) => {
  try {
    return said ? JSON.parse(said) : null;
  } catch {
    return null;
  }
};

/** @param {string} where @param {AbortSignal} [signal] */
export const get = (where, signal) => request("GET", where, undefined, undefined, signal);
export const post = (where, body = {}) => request("POST", where, JSON.stringify(body));
export const patch = (where, body) => request("PATCH", where, JSON.stringify(body));
export const del = (where) => request("DELETE", where, undefined);
/** Sends a file as it is. @param {string} where @param {Blob} file */
export const upload = (where, file) => request("POST", where, file, "application/octet-stream");

/* Seals the secret of a project in the browser, as `forge secrets set` does (team/project_secrets.py): HPKE (RFC 9180)
   in its base mode with X25519, HKDF-SHA256 and AES-256-GCM, all of them from the browser's own WebCrypto. The value does
   not leave the browser otherwise. */

const KEM = suite("KEM", 0x0020);
const HPKE = suite("HPKE", 0x0020, 0x0001, 0x0002);
const NO_SALT = new Uint8Array(32); // HMAC with an empty key is HMAC with this one, which WebCrypto takes
const MAX_SECRET = 16 << 10;

function suite(name, ...ids) {
  return joined(bytes(name), ids.flatMap((id) => [id >> 8, id & 255]));
}

function bytes(words) {
  return new TextEncoder().encode(words);
}

function joined(...parts) {
  return Uint8Array.from(parts.flatMap((part) => [...part]));
}

const mac = async (key, data) => {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, data));
};
const extract = (suiteId, salt, label, data) => mac(salt, joined(bytes("HPKE-v1"), suiteId, bytes(label), data));
/** @param {number} length at most that of one hash */
const expand = async (suiteId, key, label, about, length) =>
  (await mac(key, joined([0, length], bytes("HPKE-v1"), suiteId, bytes(label), about, [1]))).slice(0, length);

/** Whether this browser can: X25519 is young, and there is no WebCrypto on a page without HTTPS. */
export const canSeal = () =>
  Boolean(globalThis.crypto?.subtle) && crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]).then(() => true, () => false);

/** What only a runner can open, as the secret of this project and name.
 * @param {string} value @param {{key: string, project: string}} to the runners' public key and the project's id
 * @param {string} name @returns {Promise<string>} */
export const seal = async (value, { key, project }, name) => {
  const data = bytes(value);
  if (!value.trim() || data.length > MAX_SECRET || /[\0\n]/.test(value)) {
    throw { problem: `A secret is one line of at most ${MAX_SECRET >> 10} KiB.` };
  }
  const theirs = Uint8Array.from(atob(key), (one) => one.charCodeAt(0));
  const own = /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]));
  const sent = new Uint8Array(await crypto.subtle.exportKey("raw", own.publicKey));
  const shared = { name: "X25519", public: await crypto.subtle.importKey("raw", theirs, { name: "X25519" }, false, []) };
  const agreed = new Uint8Array(await crypto.subtle.deriveBits(shared, own.privateKey, 256));
  const secret = await expand(KEM, await extract(KEM, NO_SALT, "eae_prk", agreed), "shared_secret", joined(sent, theirs), 32);
  const info = bytes(`golem-forge secret\0${project}\0${name}`);
  const about = joined([0], await extract(HPKE, NO_SALT, "psk_id_hash", []), await extract(HPKE, NO_SALT, "info_hash", info));
  const schedule = await extract(HPKE, secret, "secret", []);
  const iv = await expand(HPKE, schedule, "base_nonce", about, 12);
  const once = await crypto.subtle.importKey("raw", await expand(HPKE, schedule, "key", about, 32), "AES-GCM", false, ["encrypt"]);
  const sealed = joined(sent, new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, once, data)));
  return btoa(String.fromCharCode(...sealed));
};

/** The runners' public key for people, to compare with what `forge secrets key` printed. @param {string} key */
export const keyFingerprint = async (key) => {
  const hash = await crypto.subtle.digest("SHA-256", Uint8Array.from(atob(key), (one) => one.charCodeAt(0)));
  return [...new Uint8Array(hash)].map((one) => one.toString(16).padStart(2, "0")).join("").slice(0, 32);
};

// A real provider of OpenID Connect, `oidc-provider`, with people that the test names on standard input:
//   {"person": "ada", "groups": ["dev"]}   knows ada, with these groups; null: not any more
// Its own pages ask for a name (any password) and for consent.
// Arguments: the library, the port, where browsers come back to.
import { createInterface } from "node:readline";

const [library, port, redirect] = process.argv.slice(2);
const { Provider } = await import(library);
const people = new Map();

const findAccount = (_ctx, id) => {
  const groups = people.get(id);
  if (!groups) return undefined;
  return { accountId: id, claims: () => ({ sub: id, preferred_username: id, groups }) };
};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "forge", client_secret: "the client's secret", redirect_uris: [redirect],
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
  }],
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email"] },
  cookies: { keys: ["for a test"] },
  pkce: { required: () => true },
  findAccount,
});
provider.use(async (ctx, next) => {
  await next();
  if (typeof ctx.body === "string") ctx.body = ctx.body.replace(/@import url\([^)]*\);/g, ""); // a font of another host
});
console.warn = console.info = () => undefined;
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
createInterface({ input: process.stdin }).on("line", (line) => {
  const { person, groups } = JSON.parse(line);
  if (groups) people.set(person, groups);
  else people.delete(person);
  console.log("known");
});

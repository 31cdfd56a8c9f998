// What the page uses and TypeScript's library does not describe yet. Read by jsconfig.json.

interface JSON {
  rawJSON?(text: string): any;
  isRawJSON?(value: unknown): boolean;
}

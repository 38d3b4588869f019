/** Tokens over a real store and a real token file, with a fake clock. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Store } from "../../../../src/store/store.ts";
import { openStore } from "../../../store/support/temporary-store.ts";
import { TokenAuthority } from "../../../../src/access/tokens/token-authority.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

export interface TokenWorld extends AsyncDisposable {
  readonly dir: string;
  readonly file: string;
  readonly clock: FakeClock;
  readonly lines: { details: object; message: string }[];
  /** The daemon's tokens; a new object after a {@link TokenWorld.restart}. */
  readonly tokens: TokenAuthority;
  readonly store: Store;
  /** The content of the token file. */
  readonly fileToken: () => Promise<string>;
  /** The kind of a token. */
  readonly kindOf: (token: string) => string | undefined;
  /** The name of a token's caller. */
  readonly nameOf: (token: string) => string;
  /** A daemon stops and another one starts. @param wrap lets a test intercept its store */
  restart(wrap?: (store: Store) => Store): Promise<void>;
  /** Tokens of another process with the same store. */
  beside(): Promise<TokenAuthority>;
}

export async function createTokenWorld(): Promise<TokenWorld> {
  const dir = await mkdtemp(join(tmpdir(), "svc-tokens-"));
  const file = join(dir, "api.token");
  const clock = new FakeClock();
  const lines: TokenWorld["lines"] = [];
  const record = (details: object, message: string): void => void lines.push({ details, message });
  const log = { info: record, warn: record, error: record };
  const selfUid = process.getuid?.() ?? 0;
  const open = async (store: Store): Promise<TokenAuthority> => {
    const tokens = new TokenAuthority({ file, selfUid, store, clock, log });
    await tokens.open();
    return tokens;
  };
  const others: AsyncDisposable[] = [];
  let store = await openStore({ dir: join(dir, "store") });
  let tokens = await open(store);
  const end = async (): Promise<void> => {
    tokens[Symbol.dispose]();
    await store[Symbol.asyncDispose]();
  };
  return {
    dir,
    file,
    clock,
    lines,
    get tokens() {
      return tokens;
    },
    get store() {
      return store;
    },
    fileToken: async () => (await readFile(file, "utf8")).trim(),
    kindOf: (token) => tokens.authenticate(token)?.kind,
    nameOf: (token) => {
      const known = tokens.authenticate(token);
      if (known === null) throw new Error("the token is not recognized");
      return known.digest;
    },
    async restart(wrap = (it) => it) {
      await end();
      store = await openStore({ dir: join(dir, "store") });
      tokens = await open(wrap(store));
    },
    async beside() {
      const otherStore = await openStore({ dir: join(dir, "store") });
      const other = await open(otherStore);
      others.push({
        async [Symbol.asyncDispose]() {
          other[Symbol.dispose]();
          await otherStore[Symbol.asyncDispose]();
        },
      });
      return other;
    },
    async [Symbol.asyncDispose]() {
      for (const other of others) await other[Symbol.asyncDispose]();
      await end();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

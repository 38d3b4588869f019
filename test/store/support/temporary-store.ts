import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openStore as open, type Store, type StoreOptions } from "../../../src/store/store.ts";
import { programs } from "../../support/programs.ts";

/** Opens a store with the threads of the program under test. */
export function openStore(options: StoreOptions): Promise<Store> {
  return open({ workerUrl: programs.storeWorker, ...options });
}

/** A new directory, removed with its content. */
export async function temporaryDir(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "svc-store-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** A store in a new directory. */
export async function temporaryStore(
  options: Partial<StoreOptions> = {},
): Promise<AsyncDisposable & { dir: string; store: Store }> {
  const dir = await temporaryDir();
  const store = await openStore({ dir: dir.path, ...options });
  return {
    dir: dir.path,
    store,
    async [Symbol.asyncDispose]() {
      await store[Symbol.asyncDispose]();
      await dir[Symbol.asyncDispose]();
    },
  };
}

/** An INSERT into `meta`. */
export function put(key: string, value = ""): { sql: string; params: string[] } {
  return { sql: "INSERT INTO meta (key, value) VALUES (?, ?)", params: [key, value] };
}

/** All keys in `meta`, sorted. */
export function keys(store: Store): string[] {
  return store.all<{ key: string }>("SELECT key FROM meta ORDER BY key").map(({ key }) => key);
}

/** Resolves as soon as `condition` is true; rejects if it is not within `timeoutMs`. */
export async function until(condition: () => boolean, timeoutMs = 30_000): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > deadline)
      throw new Error(`still not so after ${timeoutMs} ms: ${String(condition)}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

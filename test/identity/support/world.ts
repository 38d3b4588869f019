/** A temporary place with identities and an application directory of some user. */
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext, type Implementation } from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { Identity } from "../../../src/identity/identity.ts";
import {
  type Identities,
  type IdentitiesOptions,
  createIdentities,
} from "../../../src/identity/identities.ts";
import { programs } from "../../support/programs.ts";
import { sharedIdentities } from "../../support/shared-identities.ts";

const common = sharedIdentities();

export const isRoot = process.geteuid?.() === 0;
/** `games`: another user where the tests run as root, the tests' own otherwise. */
export const someUid = isRoot ? 5 : (process.geteuid?.() ?? -1);

/** A test that needs root, to act as other users. */
export function rootTest(title: string, run: Implementation<[]>): void {
  if (isRoot) test(title, run);
  else test.skip(`${title} (skipped: needs root)`, run);
}

export interface World extends AsyncDisposable {
  /** Belongs to the tests' own user; anybody may enter. */
  dir: string;
  /** Belongs to `user`. */
  app: string;
  user: Identity;
  identities: Identities;
}

/** @param options of helpers of its own; without, it has those of the whole file */
export async function createWorld(options?: IdentitiesOptions): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), "svc-identity-"));
  await chmod(dir, 0o755);
  const identities =
    options === undefined ? common() : createIdentities({ helperPath: programs.identityHelper, ...options });
  const app = join(dir, "app");
  await identities.createOwnedDir(app, someUid);
  return {
    dir,
    app,
    identities,
    user: await identities.as(someUid),
    async [Symbol.asyncDispose]() {
      try {
        await identities.removeOwnedDir(app, someUid);
      } finally {
        if (options !== undefined) await identities[Symbol.asyncDispose]();
        await rm(dir, { recursive: true, force: true });
      }
    },
  };
}

/** Asserts that work fails with a code of the domain, and returns the error. */
export async function assertFails(
  t: ExecutionContext,
  work: Promise<unknown>,
  code: SvcError["code"],
  message?: RegExp,
): Promise<SvcError> {
  const error = await t.throwsAsync<SvcError>(work, { instanceOf: SvcError, ...(message && { message }) });
  t.is(error.code, code, error.message);
  return error;
}

/** Waits until something holds; fails the test after 10 s. */
export async function eventually(t: ExecutionContext, what: string, holds: () => Promise<boolean> | boolean) {
  const deadline = performance.now() + 10_000;
  while (!(await holds())) {
    if (performance.now() > deadline) t.fail(`not within 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Whether a process exists and is no zombie. */
export async function isAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => "");
  return stat !== "" && !/\) [ZX] /.test(stat);
}

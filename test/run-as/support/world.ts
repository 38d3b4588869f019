/** A temporary directory with user helpers and an application directory of a user. */
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext, type Implementation } from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { UserHelper } from "../../../src/run-as/user-helper.ts";
import {
  type UserHelpers,
  type UserHelpersOptions,
  createUserHelpers,
} from "../../../src/run-as/user-helpers.ts";
import { programs } from "../../support/programs.ts";
import { sharedUserHelpers } from "../../support/shared-user-helpers.ts";

const common = sharedUserHelpers();

export const isRoot = process.geteuid?.() === 0;
/** `games`: another user if the tests run as root, otherwise the tests' own. */
export const someUid = isRoot ? 5 : (process.geteuid?.() ?? -1);

/** A test that needs root, to act as other users. */
export function rootTest(title: string, run: Implementation<[]>): void {
  if (isRoot) test(title, run);
  else test.skip(`${title} (skipped: needs root)`, run);
}

export interface World extends AsyncDisposable {
  /** Owned by the tests' user; everybody may enter. */
  dir: string;
  /** Owned by `user`. */
  app: string;
  user: UserHelper;
  userHelpers: UserHelpers;
}

/** @param options for separate helpers; default: the helpers of the test file */
export async function createWorld(options?: UserHelpersOptions): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), "svc-identity-"));
  await chmod(dir, 0o755);
  const userHelpers =
    options === undefined ? common() : createUserHelpers({ helperPath: programs.userHelper, ...options });
  const app = join(dir, "app");
  await userHelpers.createOwnedDir(app, someUid);
  return {
    dir,
    app,
    userHelpers,
    user: await userHelpers.as(someUid),
    async [Symbol.asyncDispose]() {
      try {
        await userHelpers.removeOwnedDir(app, someUid);
      } finally {
        if (options !== undefined) await userHelpers[Symbol.asyncDispose]();
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

/** Whether a process exists and is not a zombie. */
export async function isAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => "");
  return stat !== "" && !/\) [ZX] /.test(stat);
}

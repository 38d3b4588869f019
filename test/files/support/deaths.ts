/** Helpers for tests that kill processes during file operations: the victim, the moment, and the remains. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { ownerUid, type Ground } from "./ground.ts";

export const waitMs = 60_000;
/** The timeout of a whole test. */
export const testMs = 300_000;

/** The owner's helper process. */
export async function helperOf({ daemon }: Ground): Promise<number> {
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = readFileSync(`/proc/${name}/status`, "latin1");
      if (status.includes(`\nPPid:\t${daemon.pid}\n`) && status.includes(`\nUid:\t${ownerUid}\t`))
        return Number(name);
    } catch {
      // The process has ended.
    }
  }
  throw new Error("the owner has no helper");
}

/** The owner's helper process, once it has a file open in a directory that has no name yet. */
export async function uploadingHelperOf(ground: Ground, dir: string): Promise<number> {
  const helper = await helperOf(ground);
  const fds = `/proc/${helper}/fd`;
  const open = await Promise.all(
    (await readdir(fds)).map((fd) => readlink(join(fds, fd)).catch(() => "closed meanwhile")),
  );
  assert.ok(
    open.some((path) => path.startsWith(`${dir}/#`)),
    "nothing is uploaded yet",
  );
  return helper;
}

/** @returns the error of a failed call. @throws AssertionError if it succeeds or takes too long */
export async function failureOf(call: Promise<unknown>): Promise<unknown> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new assert.AssertionError({ message: "goes on" })), waitMs);
  try {
    const outcome = call.then(
      () => undefined,
      (error: unknown) => error,
    );
    const failure = await Promise.race([outcome, late]);
    assert.ok(failure, "succeeded");
    return failure;
  } finally {
    clearTimeout(timer);
  }
}

export async function leftOvers(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => name.startsWith(".svc-"));
}

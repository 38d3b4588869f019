/** Tests the operations of a storage with small objects. */
import { randomBytes } from "node:crypto";
import { SvcError } from "../../errors.ts";
import type { SpoolFile } from "../archives/spool.ts";
import { DirectoryProblem } from "./local-storage.ts";
import { isStored, type ArchiveKey, type Storage } from "./storage.ts";

export interface StorageCheck {
  name: "list" | "write" | "read" | "delete";
  ok: boolean;
  /** Empty after a success. */
  error: string;
}

const stepMs = 60_000;
/** Number of objects that are written: a list needs several pages for them. */
const probes = 3;

/** The consequence of a failure. */
const consequences: Record<StorageCheck["name"], string> = {
  list: "archives are not listed, and old ones are not removed",
  write: "backups fail",
  read: "archives cannot be verified or restored",
  delete: "old archives are never removed",
};

/** @param probe an empty file, which is written */
export async function checkStorage(
  storage: Storage,
  probe: SpoolFile,
  signal: AbortSignal | undefined,
): Promise<StorageCheck[]> {
  const content = randomBytes(1024);
  await probe.append(content);
  // Not archive names, so listings ignore them.
  const prefix = `svc-storage-test-${content.toString("hex", 0, 8)}`;
  const keys = Array.from({ length: probes }, (_, at) => ({ appId: "", name: `${prefix}-${at + 1}` }));
  const [key] = keys as [ArchiveKey, ...ArchiveKey[]];
  const results = new Map<StorageCheck["name"], StorageCheck>();
  const attempt = async (
    name: StorageCheck["name"],
    work: (stepSignal: AbortSignal) => Promise<unknown>,
  ): Promise<boolean> => {
    try {
      await work(AbortSignal.any([AbortSignal.timeout(stepMs), ...(signal ? [signal] : [])]));
      results.set(name, { name, ok: true, error: "" });
      return true;
    } catch (error) {
      signal?.throwIfAborted();
      results.set(name, { name, ok: false, error: `${messageOf(error)}: ${consequences[name]}` });
      return false;
    }
  };
  const isListed = await attempt("list", (step) => storage.list(undefined, step));
  const isWritten = await attempt("write", async (step) => {
    for (const each of keys) await storage.put(each, probe.path, { signal: step });
  });
  if (isWritten) {
    if (isListed) {
      await attempt("list", async (step) => {
        const count = await storage.count(prefix, step);
        if (count === probes) return;
        throw new SvcError("unavailable", `the storage lists ${count} of ${probes} new objects`);
      });
    }
    await attempt("read", async (step) => {
      await using file = await storage.open(key, step);
      const found = Buffer.concat(await Array.fromAsync(file.read(0, file.sizeBytes, step)));
      const part = Buffer.concat(await Array.fromAsync(file.read(100, 200, step)));
      if (!found.equals(content) || !part.equals(content.subarray(100, 200)))
        throw new SvcError("archive_damaged", "the storage returns different bytes");
    });
    await attempt("delete", async (step) => {
      for (const each of keys) await storage.remove(each, step);
      if (await isStored(storage, key, step).catch(() => true))
        throw new SvcError("not_possible", "a deleted object still exists");
    });
  } else {
    const error = "not tested, because writing failed";
    for (const name of ["read", "delete"] as const) results.set(name, { name, ok: false, error });
    for (const each of keys) await storage.remove(each, signal).catch(() => undefined);
  }
  return [...results.values()];
}

function messageOf(error: unknown): string {
  if (error instanceof SvcError) {
    // Only root tests storages.
    const { cause } = error;
    return cause instanceof DirectoryProblem ? `${error.message} (${cause.message})` : error.message;
  }
  return error instanceof Error ? error.message : String(error);
}

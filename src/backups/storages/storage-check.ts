/** Tests the operations of a storage with a small object. */
import { randomBytes } from "node:crypto";
import { SvcError } from "../../errors.ts";
import type { SpoolFile } from "../archives/spool.ts";
import { DirectoryProblem } from "./local-storage.ts";
import { isStored, type Storage } from "./storage.ts";

export interface StorageCheck {
  name: "list" | "write" | "read" | "delete";
  ok: boolean;
  /** Empty after a success. */
  error: string;
}

const stepMs = 60_000;

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
  // Not an archive name, so listings ignore it.
  const key = { appId: "", name: `svc-storage-test-${content.toString("hex", 0, 8)}` };
  const checks: StorageCheck[] = [];
  const attempt = async (
    name: StorageCheck["name"],
    work: (stepSignal: AbortSignal) => Promise<unknown>,
  ): Promise<boolean> => {
    try {
      await work(AbortSignal.any([AbortSignal.timeout(stepMs), ...(signal ? [signal] : [])]));
      checks.push({ name, ok: true, error: "" });
      return true;
    } catch (error) {
      signal?.throwIfAborted();
      checks.push({ name, ok: false, error: `${messageOf(error)}: ${consequences[name]}` });
      return false;
    }
  };
  await attempt("list", (step) => storage.list(undefined, step));
  const isWritten = await attempt("write", (step) => storage.put(key, probe.path, { signal: step }));
  if (isWritten) {
    await attempt("read", async (step) => {
      await using file = await storage.open(key, step);
      const found = Buffer.concat(await Array.fromAsync(file.read(0, file.sizeBytes, step)));
      const part = Buffer.concat(await Array.fromAsync(file.read(100, 200, step)));
      if (!found.equals(content) || !part.equals(content.subarray(100, 200)))
        throw new SvcError("archive_damaged", "the storage returns different bytes");
    });
    await attempt("delete", async (step) => {
      await storage.remove(key, step);
      if (await isStored(storage, key, step).catch(() => true))
        throw new SvcError("not_possible", "a deleted object still exists");
    });
  } else {
    const error = "not tested, because writing failed";
    checks.push({ name: "read", ok: false, error }, { name: "delete", ok: false, error });
  }
  return checks;
}

function messageOf(error: unknown): string {
  if (error instanceof SvcError) {
    // Only root tests storages.
    const { cause } = error;
    return cause instanceof DirectoryProblem ? `${error.message} (${cause.message})` : error.message;
  }
  return error instanceof Error ? error.message : String(error);
}

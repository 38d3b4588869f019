/** Tries what a storage is asked for, with a small object of its own. */
import { randomBytes } from "node:crypto";
import { SvcError } from "../../errors.ts";
import type { SpoolFile } from "../spool.ts";
import { isStored, type Storage } from "./storage.ts";

export interface StorageCheck {
  name: "list" | "write" | "read" | "delete";
  ok: boolean;
  /** Empty when nothing went wrong. */
  error: string;
}

const stepMs = 60_000;

/** What a failure means for backups. */
const consequences: Record<StorageCheck["name"], string> = {
  list: "archives there are not shown, and old ones are not removed",
  write: "backups cannot go there",
  read: "nothing there can be verified or restored",
  delete: "old archives stay for ever",
};

/** @param probe an empty file, which is written */
export async function checkStorage(
  storage: Storage,
  probe: SpoolFile,
  signal: AbortSignal | undefined,
): Promise<StorageCheck[]> {
  const content = randomBytes(1024);
  await probe.append(content);
  // No archive's name: listings pass it over.
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
      if (!found.equals(content)) throw new SvcError("archive_damaged", "it gives back other bytes");
    });
    await attempt("delete", async (step) => {
      await storage.remove(key, step);
      if (await isStored(storage, key, step).catch(() => true))
        throw new SvcError("not_possible", "what was deleted is still there");
    });
  } else {
    const error = "not tried, because nothing could be written";
    checks.push({ name: "read", ok: false, error }, { name: "delete", ok: false, error });
  }
  return checks;
}

function messageOf(error: unknown): string {
  if (error instanceof SvcError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

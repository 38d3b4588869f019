/**
 * The forms of an archive for its storages: plain, or encrypted for each storage's recipients, while the
 * archive is still written.
 */
import { SvcError } from "../../errors.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { freeMemory } from "../../lib/buffer-pool.ts";
import type { Spool, SpoolFile } from "../archives/spool.ts";
import type { Age } from "./age.ts";
import { chunkBytes, sealedBytes } from "./age-payload.ts";

/** Bytes per encryption task. */
const blockBytes = 8 * chunkBytes;
/** Bytes to keep free for the archive while it is written; with less free space, encryption waits. */
const spareBytes = 192 << 20;

export interface EncryptedFormsOptions {
  /** Owned by the caller. */
  archive: SpoolFile;
  spool: Spool;
  age: Age;
  /** Whether the forms become permanent files of this host. */
  isPermanent: boolean;
}

export class EncryptedForms implements AsyncDisposable {
  readonly #options: EncryptedFormsOptions;
  /** By recipients: storages with the same recipients share a file. */
  readonly #forms = new Map<string, Promise<SpoolFile>>();
  readonly #gone = new AbortController();

  constructor(options: EncryptedFormsOptions) {
    this.#options = options;
  }

  /**
   * The form for these recipients, valid until disposal. Created at the first request, complete when the
   * archive is.
   * @throws SvcError `disk_full`
   */
  for(recipients: readonly string[], work: WorkOptions): Promise<SpoolFile> {
    if (recipients.length === 0) return Promise.resolve(this.#options.archive);
    const key = recipients.toSorted().join(" ");
    const form = this.#forms.get(key) ?? this.#form(recipients, work);
    // The caller handles the error.
    form.catch(() => undefined);
    this.#forms.set(key, form);
    return form;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gone.abort();
    for (const form of this.#forms.values()) {
      const file = await form.catch(() => undefined);
      await file?.[Symbol.asyncDispose]();
    }
  }

  async #form(recipients: readonly string[], work: WorkOptions): Promise<SpoolFile> {
    const { archive } = this.#options;
    const signal = work.signal ? AbortSignal.any([work.signal, this.#gone.signal]) : this.#gone.signal;
    if (!archive.isComplete) {
      try {
        return await this.#encrypt(recipients, { ...work, signal }, { spareBytes });
      } catch (error) {
        if (!(error instanceof SvcError) || error.reason !== "disk_full") throw error;
        await archive.untilComplete(signal);
      }
    }
    return this.#encrypt(recipients, { ...work, signal });
  }

  async #encrypt(
    recipients: readonly string[],
    { signal, onProgress }: WorkOptions & { signal: AbortSignal },
    { spareBytes: spare = 0 } = {},
  ): Promise<SpoolFile> {
    const { archive, spool, age, isPermanent } = this.#options;
    const { head, key } = await age.seal(recipients);
    const expectedBytes = head.length + (archive.isComplete ? sealedBytes(archive.sizeBytes) : 0);
    const file = await spool.create({ expectedBytes, spareBytes: spare, isPermanent });
    const append = async (bytes: Uint8Array): Promise<void> => {
      await file.append(bytes);
      freeMemory(bytes);
    };
    try {
      await file.append(head);
      const stream = age.stream();
      let before: Promise<Uint8Array> | undefined;
      let doneBytes = 0;
      for await (const { bytes, isEnd } of archive.blocks(blockBytes, signal)) {
        const first = doneBytes / chunkBytes;
        doneBytes += bytes.length;
        const current = stream.encrypt(key, { first, isEnd, bytes });
        // Awaited below, unless the disk is full before.
        current.catch(() => undefined);
        if (before !== undefined) await append(await before);
        before = current;
        // Until then, the progress of the archive itself is reported.
        if (archive.isComplete) {
          const done = { doneBytes: BigInt(doneBytes), totalBytes: BigInt(archive.sizeBytes) };
          onProgress?.({ step: "encrypt", message: "", ...done });
        }
      }
      if (before !== undefined) await append(await before);
      await file.end();
      return file;
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  }
}

/** One archive in the forms that storages want it in: as it is, or encrypted for the recipients of each. */
import type { WorkOptions } from "../../apps/progress.ts";
import type { Spool, SpoolFile } from "../spool.ts";
import { openLocalFile } from "../storages/local-storage.ts";
import type { Age } from "./age.ts";
import { chunkBytes, sealedBytes } from "./age-payload.ts";
import { inBlocks } from "./encrypted-file.ts";

/** Encrypted at once. */
const blockBytes = 8 * chunkBytes;

export class EncryptedForms implements AsyncDisposable {
  readonly #archive: SpoolFile;
  readonly #spool: Spool;
  readonly #age: Age;
  /** By recipients: storages that have the same ones share a file. */
  readonly #forms = new Map<string, Promise<SpoolFile>>();

  /** @param archive whole and on the disk; it stays the caller's */
  constructor(archive: SpoolFile, spool: Spool, age: Age) {
    this.#archive = archive;
    this.#spool = spool;
    this.#age = age;
  }

  /** Good until this is disposed of. @throws SvcError `disk_full` */
  for(recipients: readonly string[], work: WorkOptions): Promise<SpoolFile> {
    if (recipients.length === 0) return Promise.resolve(this.#archive);
    const key = recipients.toSorted().join(" ");
    const form = this.#forms.get(key) ?? this.#encrypt(recipients, work);
    this.#forms.set(key, form);
    return form;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const form of this.#forms.values()) {
      // Whoever asked for one that failed was told.
      const file = await form.catch(() => undefined);
      await file?.[Symbol.asyncDispose]();
    }
  }

  async #encrypt(recipients: readonly string[], { signal, onProgress }: WorkOptions): Promise<SpoolFile> {
    const { sizeBytes } = this.#archive;
    const { head, key } = await this.#age.seal(recipients);
    const file = await this.#spool.create(undefined, head.length + sealedBytes(sizeBytes));
    try {
      await file.append(head);
      const stream = this.#age.stream();
      await using plain = await openLocalFile(this.#archive.path);
      let before: Promise<Uint8Array> | undefined;
      let doneBytes = 0;
      for await (const bytes of inBlocks(plain.read(0, sizeBytes, signal), blockBytes)) {
        const first = doneBytes / chunkBytes;
        doneBytes += bytes.length;
        const current = stream.encrypt(key, { first, isEnd: doneBytes === sizeBytes, bytes });
        // It is waited for below, unless the disk is full before.
        current.catch(() => undefined);
        if (before !== undefined) await file.append(await before);
        before = current;
        onProgress?.({
          step: "encrypt",
          message: "",
          doneBytes: BigInt(doneBytes),
          totalBytes: BigInt(sizeBytes),
        });
      }
      if (before !== undefined) await file.append(await before);
      await file.sync();
      return file;
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  }
}

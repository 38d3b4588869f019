/** An archive that is open for reading. What is in it is read with the identity that its files belong to, never by root. */
import { Readable } from "node:stream";
import { volumeOfTree } from "../apps/backed-up-trees.ts";
import type { LayOutPlace } from "../apps/restore.ts";
import type { WorkOptions } from "../apps/progress.ts";
import { notFound, SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type {
  ArchivedEntry,
  ArchivePart,
  DescribedArchive,
  FramePlace,
  LocatedFile,
  LocatedPaths,
  ReadArchiveResult,
} from "../identity/identity-work.ts";
import { requireRoom } from "./spool.ts";
import { readFooter, readIndexPart, readTables, type ArchiveFooter } from "./archive-footer.ts";
import type { StoredFile } from "./storages/storage.ts";

export class Archive implements AsyncDisposable {
  readonly footer: ArchiveFooter;
  /** On its storage, encrypted or not. */
  readonly sizeBytes: number;
  readonly #file: StoredFile;
  readonly #described: DescribedArchive;

  private constructor(file: StoredFile, footer: ArchiveFooter, sizeBytes: number) {
    this.#file = file;
    this.footer = footer;
    this.sizeBytes = sizeBytes;
    this.#described = { parts: footer.parts, uid: footer.app.run_uid, trees: footer.trees };
  }

  /**
   * The file is the archive's from now on.
   * @param sizeBytes on its storage, where the file is what was decrypted of it
   * @throws SvcError `archive_damaged`
   */
  static async open(file: StoredFile, signal?: AbortSignal, sizeBytes = file.sizeBytes): Promise<Archive> {
    try {
      return new Archive(file, await readFooter(file, signal), sizeBytes);
    } catch (error) {
      await file[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The index, with what it takes to compare it. */
  index(signal?: AbortSignal): ArchivePart & { index: () => AsyncIterable<Buffer> } {
    const { parts } = this.footer;
    return { ...parts.index, index: () => readIndexPart(this.#file, parts, signal) };
  }

  /** Compares all of it with its tables. @throws SvcError `archive_damaged` */
  async verify(identity: Identity, work: WorkOptions): Promise<ReadArchiveResult> {
    return identity.readArchive(this.#described, this.#input(work.signal), this.#reading("verify", work));
  }

  /** Lays all of it out in directories, its volumes of the engine, too, after comparing it. */
  async layOutForTrial(identity: Identity, root: string, work: WorkOptions): Promise<ReadArchiveResult> {
    await requireRoom(root, this.footer.parts.tarBytes);
    return identity.readArchive(this.#described, this.#input(work.signal), {
      ...this.#reading("verify", work),
      target: { root, into: this.footer.trees },
    });
  }

  /** Compares it all, and lays the trees out. @param paths only these, with all beneath; everything when empty */
  async layOut(
    { identity, root, into, takeVolume }: LayOutPlace,
    paths: readonly string[],
    work: WorkOptions,
  ): Promise<ReadArchiveResult> {
    // Volumes of the engine are no trees of the place.
    const rest = [...into];
    const target = {
      root,
      into: this.footer.trees.map((tree) =>
        volumeOfTree(tree) === undefined ? (rest.shift() ?? null) : null,
      ),
      takeVolume: (tree: string, tar: Readable) => takeVolume(volumeOfTree(tree) ?? "", tar),
      // What it does not hold is taken from where the app is.
      ...(this.footer.since !== undefined && {
        base: this.footer.trees.map((tree) => (volumeOfTree(tree) === undefined ? tree : null)),
      }),
    };
    if (paths.length === 0) {
      // Before anything is there: little may become very much.
      await requireRoom(root, this.footer.parts.tarBytes);
      return identity.readArchive(this.#described, this.#input(work.signal), {
        ...this.#reading("restore", work),
        target,
      });
    }
    const { frames, contentBytes } = await this.locate(identity, paths, work);
    return identity.readArchive(this.#described, this.#input(work.signal, frames), {
      ...this.#reading("restore", work, contentBytes),
      ...{ target, paths },
      frames: frames.map(({ number }) => number),
    });
  }

  /** @throws SvcError `not_found` */
  async locate(identity: Identity, paths: readonly string[], { signal }: WorkOptions): Promise<LocatedPaths> {
    return identity.locateInArchive(this.#described, this.#tables(signal), paths, { signal });
  }

  /** @param directory the archive's root when empty. @throws SvcError `not_found` */
  async browse(
    identity: Identity,
    page: { directory: string; after: number; limit: number },
    signal?: AbortSignal,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    const { directory } = page;
    try {
      return await identity.browseArchive(this.#described, this.#tables(signal), {
        ...page,
        signal,
      });
    } catch (error) {
      if (!(error instanceof SvcError && error.reason === "not_found")) throw error;
      throw notFound("directory", directory, `the archive has no directory "${directory}"`, error);
    }
  }

  /** @throws SvcError `not_found`, `denied` for what is no regular file */
  async findFile(identity: Identity, path: string, signal?: AbortSignal): Promise<LocatedFile> {
    return identity.locateFileInArchive(this.#described, this.#tables(signal), path, { signal });
  }

  /** The bytes of a file; an error of the stream when they are not those that the index has. */
  readFile(identity: Identity, file: LocatedFile, signal?: AbortSignal): Readable {
    return identity.readFileOfArchive(this.#described, this.#input(signal, file.frames), file, { signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file[Symbol.asyncDispose]();
  }

  #reading(step: string, { signal, onProgress }: WorkOptions, totalBytes = this.footer.parts.contentBytes) {
    return {
      signal,
      onProgress: (doneBytes: number) =>
        onProgress?.({ step, message: "", doneBytes: BigInt(doneBytes), totalBytes: BigInt(totalBytes) }),
    };
  }

  #tables(signal?: AbortSignal): Readable {
    return Readable.from(readTables(this.#file, this.footer.parts, signal));
  }

  /** The tables, then frames: all of them where none are named. */
  #input(signal?: AbortSignal, frames?: readonly FramePlace[]): Readable {
    const { parts } = this.footer;
    const file = this.#file;
    return Readable.from(
      (async function* () {
        yield* readTables(file, parts, signal);
        for (const { at, bytes } of frames ?? [{ at: 0, bytes: parts.framesBytes }]) {
          yield* file.read(at, at + bytes, signal);
        }
      })(),
    );
  }
}

/** Operations on files of the host, performed as one user: the typed API of the helper for the file service. */
import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import type { Readable } from "node:stream";
import { SvcError } from "../errors.ts";
import { PieceChannel } from "../lib/piece-channel.ts";
import { boundedLines } from "../lib/lines.ts";
import type { Guarded } from "./helper/host/guard.mjs";
import { answerStream } from "./answer-stream.ts";
import { malformed } from "./answers.ts";
import * as answers from "./host-answers.ts";
import type {
  HostEntry,
  HostPage,
  ReadRange,
  HostContent,
  UploadOptions,
  Deleted,
  RequestedAttributes,
  SearchOptions,
  SearchRecord,
  Stage,
  StageRecord,
  UsageRecord,
  ArchiveFormat,
  UnpackFormat,
  UnpackLimits,
  Unpacked,
  HostWork,
} from "./host-work.ts";
import type { ArgsOf, Op } from "./helper-protocol.ts";
import type { Ask, HelperAnswer, HelperRequest } from "./pending-request.ts";
import type { User } from "./user.ts";

/** Milliseconds for short work, and for work of any size. */
const quickMs = 30_000;
const longMs = 24 * 60 * 60_000;
/** Milliseconds for the clean-up after a helper that died. */
const discardMs = 60_000;

/** A record of a search or a count, with at most two paths. */
const maxRecordChars = 128 << 10;

/** The arguments of an operation except its path and guard. */
type HostArgs<O extends Op> = Omit<ArgsOf<O>, "path" | "guard">;

export interface HostFilesOptions {
  /** Paths that this caller may not touch, even if the user may. */
  guard?: Guarded;
  /** Records the temporary names of unfinished work. */
  stages?: StageRecord;
}

export class HostFiles {
  readonly user: User;
  readonly #ask: Ask;
  readonly #options: HostFilesOptions;

  constructor(user: User, ask: Ask, options: HostFilesOptions = {}) {
    this.user = user;
    this.#ask = ask;
    this.#options = options;
  }

  async stat(path: string, { signal }: HostWork = {}): Promise<HostEntry> {
    return answers.readHostEntry((await this.#do("hostStat", path, {}, { signal })).value);
  }

  /** @param page `after`: the last name of the previous page, or empty */
  async list(
    path: string,
    page: { hidden: boolean; after: string; limit: number },
    { signal }: HostWork = {},
  ): Promise<HostPage> {
    return answers.readHostPage(await this.#do("hostList", path, page, { signal }));
  }

  /** Opens a regular file. The work ends after the last byte, when the reader stops, or when the signal aborts. */
  async read(path: string, range: ReadRange, { signal }: HostWork = {}): Promise<HostContent> {
    const { offset, length = null, fromEnd = false, ifTag = "" } = range;
    const head = Promise.withResolvers<Omit<HostContent, "bytes">>();
    const bytes = new PieceChannel();
    this.#ask({
      ...this.#request("hostRead", path, { offset, length, fromEnd, ifTag }),
      signal,
      timeoutMs: longMs,
      onEvent: (event) => head.resolve(answers.readContentHead(event)),
      output: (chunk) => bytes.send(chunk),
      returnsOutput: true,
    }).then(
      () => bytes.end(),
      (thrown: unknown) => {
        const error = thrown instanceof Error ? thrown : new Error(String(thrown));
        // An error before the first byte is reported by the head.
        head.reject(error);
        bytes.fail(error);
      },
    );
    return { ...(await head.promise), bytes };
  }

  /** The last lines of a regular file, then everything written to it while the stream is open. */
  tail(path: string, options: { lines: number; follow: boolean }, { signal }: HostWork = {}): Readable {
    return this.#stream("hostTail", path, options, signal);
  }

  search(path: string, options: SearchOptions, { signal }: HostWork = {}): AsyncGenerator<SearchRecord> {
    return this.#records("hostSearch", path, { ...options }, signal, answers.readSearchRecord);
  }

  usage(path: string, depth: number, { signal }: HostWork = {}): AsyncGenerator<UsageRecord> {
    return this.#records("hostUsage", path, { depth }, signal, answers.readUsageRecord);
  }

  async *#records<R, O extends Op>(
    op: O,
    path: string,
    args: HostArgs<O>,
    signal: AbortSignal | undefined,
    read: (line: string) => R,
  ): AsyncGenerator<R> {
    const bytes = this.#stream(op, path, args, signal).setEncoding("utf8");
    const lines = { maxLength: maxRecordChars, turn: () => undefined };
    for await (const line of boundedLines(bytes as AsyncIterable<string>, lines)) {
      yield read(line);
    }
    // The line is longer than any valid record.
    if (!bytes.readableEnded) throw malformed();
  }

  #stream<O extends Op>(op: O, path: string, args: HostArgs<O>, signal: AbortSignal | undefined): Readable {
    const request = { ...this.#request(op, path, args), signal, timeoutMs: longMs };
    return answerStream(this.#ask, request, { highWaterMark: 1 << 20 });
  }

  async upload(
    path: string,
    input: Readable,
    { overwrite, ifMatch, mode, ownsContent: ownsInput = false }: UploadOptions,
    { signal }: HostWork = {},
  ): Promise<HostEntry> {
    const args = { overwrite: overwrite || ifMatch !== "", ifMatch, mode: mode ?? null };
    return answers.readHostEntry(
      (await this.#staged("hostUpload", path, [path], args, { signal }, { input, ownsInput })).value,
    );
  }

  async makeDirectory(path: string, parents: boolean, mode: number, work: HostWork = {}): Promise<HostEntry> {
    return answers.readHostEntry((await this.#do("hostMakeDirectory", path, { parents, mode }, work)).value);
  }

  async setAttributes(path: string, requested: RequestedAttributes, work: HostWork = {}): Promise<HostEntry> {
    const { mode = null, uid = null, gid = null, recursive } = requested;
    const args = { mode, uid, gid, recursive };
    return answers.readHostEntry((await this.#long("hostAttributes", path, args, work)).value);
  }

  async delete(paths: readonly string[], work: HostWork = {}): Promise<Deleted> {
    const subject = paths.join(", ").slice(0, 256);
    return answers.readDeleted(await this.#long("hostDelete", subject, { paths }, work));
  }

  async copy(
    from: string,
    to: string,
    overwrite: boolean,
    work: HostWork = {},
  ): Promise<{ entry: HostEntry; copiedBytes: number }> {
    const args = { from, to, overwrite };
    return answers.readCopied((await this.#staged("hostCopy", `${from} to ${to}`, [to], args, work)).value);
  }

  async move(from: string, to: string, overwrite: boolean, work: HostWork = {}): Promise<HostEntry> {
    const args = { from, to, overwrite };
    return answers.readHostEntry(
      (await this.#staged("hostMove", `${from} to ${to}`, [to], args, work)).value,
    );
  }

  async pack(
    path: string,
    paths: readonly string[],
    { format, overwrite }: { format: ArchiveFormat; overwrite: boolean },
    work: HostWork = {},
  ): Promise<HostEntry> {
    const args = { path, paths, format, overwrite };
    return answers.readHostEntry((await this.#staged("hostPack", path, [path], args, work)).value);
  }

  async unpack(
    path: string,
    target: string,
    options: {
      format: UnpackFormat;
      /** Encoding of names that are not UTF-8; empty: CP437 in a zip, and unchanged bytes in a tar. */
      nameEncoding: string;
      overwrite: boolean;
      limits: UnpackLimits;
    },
    work: HostWork = {},
  ): Promise<Unpacked> {
    const args = { path, target, ...options };
    // Next to the target, or in it if the target exists.
    const beside = [target, posix.join(target, temporaryName())];
    return answers.readUnpacked((await this.#staged("hostUnpack", path, beside, args, work)).value);
  }

  /**
   * Runs work that first writes under a temporary name, which is removed if the helper dies.
   * @param beside paths next to which the temporary name may be
   */
  async #staged<O extends Op>(
    op: O,
    subject: string,
    beside: readonly string[],
    args: Omit<HostArgs<O>, "temporary">,
    work: HostWork,
    sent: Pick<HelperRequest, "input" | "ownsInput"> = {},
  ): Promise<HelperAnswer<O>> {
    const stage = { name: temporaryName(), uid: this.user.uid, beside };
    const { stages } = this.#options;
    await stages?.keep(stage);
    try {
      const staged = { ...args, temporary: stage.name } as unknown as HostArgs<O>;
      return await this.#long(op, subject, staged, work, sent);
    } catch (error) {
      if (error instanceof SvcError && isCutShort(error)) await this.discard(stage).catch(() => undefined);
      throw error;
    } finally {
      await stages?.forget(stage.name);
    }
  }

  /** Removes the leftovers of interrupted work. */
  async discard({ name, beside }: Stage): Promise<void> {
    for (const path of beside) {
      const request = { op: "hostDiscard" as const, args: { path, temporary: name }, subject: path };
      await this.#ask({ ...request, timeoutMs: discardMs }).catch((error: unknown) => {
        // Nothing is there next to a path that does not exist or now leads elsewhere.
        const isElsewhere =
          error instanceof SvcError && ["not_found", "failed_precondition"].includes(error.code);
        if (!isElsewhere) throw error;
      });
    }
  }

  #long<O extends Op>(
    op: O,
    subject: string,
    args: HostArgs<O>,
    { signal, onProgress }: HostWork,
    sent: Pick<HelperRequest, "input" | "ownsInput"> = {},
  ): Promise<HelperAnswer<O>> {
    return this.#ask({
      ...this.#request(op, subject, args),
      signal,
      timeoutMs: longMs,
      onEvent: onProgress && ((event) => onProgress(answers.readHostProgress(event))),
      ...sent,
    });
  }

  #do<O extends Op>(op: O, path: string, args: HostArgs<O>, { signal }: HostWork): Promise<HelperAnswer<O>> {
    return this.#ask({ ...this.#request(op, path, args), signal, timeoutMs: quickMs });
  }

  #request<O extends Op>(
    op: O,
    path: string,
    args: HostArgs<O>,
  ): Pick<HelperRequest<O>, "op" | "args" | "subject"> {
    const { guard } = this.#options;
    // `HostArgs` omits only the path and the guard.
    const whole = { path, ...args, ...(guard && { guard }) } as unknown as ArgsOf<O>;
    return { op, args: whole, subject: path };
  }
}

function temporaryName(): string {
  return `.svc-${randomBytes(8).toString("hex")}.tmp`;
}

/** Whether the helper may have died during the request. */
function isCutShort({ code }: { readonly code: string }): boolean {
  return code === "unavailable" || code === "canceled" || code === "deadline_exceeded";
}

/**
 * Encryption of archives with age (age-encryption.org/v1), in threads of its own. Identities are used and forgotten: nothing
 * here keeps one or puts one into an error.
 */
import { invalidField, SvcError } from "../../errors.ts";
import { TaskError, TaskThread } from "../../lib/task-thread.ts";
import { damaged } from "../archive-footer.ts";
import type { SealedHeader } from "./age-header.ts";
import type { Chunks } from "./age-payload.ts";
import type { AgeTask, AgeTasks } from "./age-tasks.ts";

/** For one task: some chunks, or as many keys as fit into a header. */
const taskMs = 30_000;
const idleMs = 10_000;
const headersIdleMs = 1_000;
const maxWaiting = 1024;
/** Each is tried with all of a header's keys. */
const maxIdentities = 16;

type AgeThread = TaskThread<AgeTask, AgeTasks[keyof AgeTasks]["answer"]>;

export class Age implements Disposable {
  readonly #payloads: AgeThread;
  /** One of its own: a header that somebody has made may take as long as megabytes of a payload. */
  readonly #headers: AgeThread;
  #lastStream = 0;

  constructor(threadUrl: URL) {
    const options = { url: threadUrl, timeoutMs: taskMs, idleMs, maxWaiting };
    this.#payloads = new TaskThread(options);
    this.#headers = new TaskThread({ ...options, idleMs: headersIdleMs });
  }

  /** @throws SvcError `invalid_request` for one that is no public key */
  async requireRecipients(recipients: readonly string[]): Promise<void> {
    for (const [at, recipient] of recipients.entries()) {
      if ((await ask(this.#headers, "", "seal", { recipients: [recipient] })) === undefined)
        throw invalidField(`recipients[${at}]`, "is no age public key: a character of it is wrong");
    }
  }

  /** A header, and the key of what comes after it. */
  async seal(recipients: readonly string[]): Promise<SealedHeader> {
    const sealed = await ask(this.#headers, "", "seal", { recipients });
    if (sealed === undefined) throw new SvcError("internal", "a recipient is no age public key");
    return sealed;
  }

  /**
   * The key of a file's payload.
   * @param head its header and its nonce
   * @throws SvcError `invalid_request` for an identity that does not open it, `archive_damaged`
   */
  async open(head: Uint8Array, { identity, uid }: Opener): Promise<Uint8Array> {
    const identities = identitiesIn(identity);
    const opened = await ask(this.#headers, `uid ${uid}`, "open", { head, identities });
    if ("key" in opened) return opened.key;
    if (opened.why === "damaged") throw damaged("has a damaged header of age");
    throw invalidField(
      "identity",
      opened.why === "no_match"
        ? "is none that the archive is encrypted for"
        : "is no age identity: a character of it is wrong",
    );
  }

  /** In the turns of one archive. */
  stream(): AgeStream {
    const name = String(++this.#lastStream);
    return {
      encrypt: (key, chunks) =>
        ask(this.#payloads, name, "encrypt", { key, ...chunks }, [chunks.bytes.buffer]),
      decrypt: async (key, chunks) => {
        const bytes = await ask(this.#payloads, name, "decrypt", { key, ...chunks }, [chunks.bytes.buffer]);
        if (bytes === undefined) throw damaged("is not what was encrypted");
        return bytes;
      },
    };
  }

  [Symbol.dispose](): void {
    this.#payloads[Symbol.dispose]();
    this.#headers[Symbol.dispose]();
  }
}

/** Who opens something. */
export interface Opener {
  /** What an identity file holds. */
  identity: string;
  /** In whose turn. */
  uid: number;
}

async function ask<K extends keyof AgeTasks>(
  thread: AgeThread,
  name: string,
  kind: K,
  question: AgeTasks[K]["question"],
  transfer?: readonly ArrayBuffer[],
): Promise<AgeTasks[K]["answer"]> {
  try {
    return await thread.run(name, { kind, ...question } as AgeTask, transfer);
  } catch (error) {
    if (error instanceof TaskError && (error.why === "too_slow" || error.why === "starved"))
      throw new SvcError("deadline_exceeded", "the encryption of an archive took too long");
    if (error instanceof TaskError && error.why === "too_many")
      throw new SvcError("too_many", "too many encrypted archives are at work; try again later");
    throw error;
  }
}

/** Chunks are the thread's from then on. */
export interface AgeStream {
  encrypt: (key: Uint8Array, chunks: Chunks) => Promise<Uint8Array>;
  /** @throws SvcError `archive_damaged` */
  decrypt: (key: Uint8Array, chunks: Chunks) => Promise<Uint8Array>;
}

/** @throws SvcError `invalid_request` */
function identitiesIn(text: string): string[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  const identities = lines.filter((line) => line !== "" && !line.startsWith("#"));
  if (identities.length === 0)
    throw invalidField(
      "identity",
      "is needed (--identity FILE): the archive is encrypted with age for its recipients",
    );
  if (identities.length > maxIdentities)
    throw invalidField(
      "identity",
      `has ${identities.length} identities, and at most ${maxIdentities} are tried`,
    );
  for (const [at, identity] of identities.entries()) {
    if (!/^AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}$/.test(identity))
      throw invalidField("identity", `has no AGE-SECRET-KEY-1… as number ${at + 1} of its lines`);
  }
  return identities;
}

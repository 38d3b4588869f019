/**
 * Encryption of archives with age (age-encryption.org/v1), in separate threads. Identities are never stored
 * or included in errors.
 */
import { invalidField, SvcError } from "../../errors.ts";
import { rootShare, shareOwner } from "../../lib/share-owner.ts";
import { TaskError, TaskThread } from "../../lib/task-thread.ts";
import { damaged } from "../archives/archive-footer.ts";
import type { SealedHeader, OpenedHeader } from "./age-header.ts";
import type { Chunks } from "./age-payload.ts";

/** Timeout for one task: some chunks, or the keys of one header. */
const taskMs = 30_000;
const idleMs = 10_000;
const headersIdleMs = 1_000;
/** The tasks of one user cannot block root or other users. */
const bounds = { maxWaiting: 1024, maxWaitingPerName: 64, reservedName: `uid ${rootShare}` };
/** Each identity is tried with all keys of a header. */
const maxIdentities = 16;

type AgeThread = TaskThread<AgeTask, AgeTasks[keyof AgeTasks]["answer"]>;

export class Age implements Disposable {
  readonly #payloads: AgeThread;
  /** A separate thread: a crafted header may take as long as megabytes of payload. */
  readonly #headers: AgeThread;

  constructor(threadUrl: URL) {
    const options = { url: threadUrl, timeoutMs: taskMs, idleMs, ...bounds };
    this.#payloads = new TaskThread(options);
    this.#headers = new TaskThread({ ...options, idleMs: headersIdleMs });
  }

  /** @throws SvcError `invalid_request` for an invalid public key */
  async requireRecipients(recipients: readonly string[]): Promise<void> {
    for (const [at, recipient] of recipients.entries()) {
      if ((await ask(this.#headers, ownName(), "seal", { recipients: [recipient] })) === undefined)
        throw invalidField(`recipients[${at}]`, "is not a valid age public key");
    }
  }

  /** Returns a header and the payload key. */
  async seal(recipients: readonly string[]): Promise<SealedHeader> {
    const sealed = await ask(this.#headers, ownName(), "seal", { recipients });
    if (sealed === undefined) throw new SvcError("internal", "a recipient is not a valid age public key");
    return sealed;
  }

  /**
   * The key of a file's payload.
   * @param head its header and its nonce
   * @throws SvcError `invalid_request` for an identity that cannot open it, `archive_damaged`
   */
  async open(head: Uint8Array, { identity, uid }: Opener): Promise<Uint8Array> {
    const identities = identitiesIn(identity);
    const opened = await ask(this.#headers, `uid ${uid}`, "open", { head, identities });
    if ("key" in opened) return opened.key;
    if (opened.why === "damaged") throw damaged("has a damaged age header");
    throw invalidField(
      "identity",
      opened.why === "no_match" ? "is not a recipient of the archive" : "is not a valid age identity",
    );
  }

  /** A stream whose chunks wait in the current user's queue. */
  stream(): AgeStream {
    const name = ownName();
    return {
      encrypt: (key, chunks) =>
        ask(this.#payloads, name, "encrypt", { key, ...chunks }, [chunks.bytes.buffer]),
      decrypt: async (key, chunks) => {
        const bytes = await ask(this.#payloads, name, "decrypt", { key, ...chunks }, [chunks.bytes.buffer]);
        if (bytes === undefined) throw damaged("is not authentic");
        return bytes;
      },
    };
  }

  [Symbol.dispose](): void {
    this.#payloads[Symbol.dispose]();
    this.#headers[Symbol.dispose]();
  }
}

/** The identity and the user of a decryption. */
export interface Opener {
  /** Content of an identity file. */
  identity: string;
  /** uid whose queue is used. */
  uid: number;
}

function ownName(): string {
  return `uid ${shareOwner()}`;
}

async function ask<K extends keyof AgeTasks>(
  thread: AgeThread,
  name: string,
  kind: K,
  question: AgeTasks[K]["question"],
  transfer?: readonly ArrayBuffer[],
): Promise<AgeTasks[K]["answer"]> {
  try {
    return await thread.run(name, { kind, ...question } as AgeTask, transfer && { transfer });
  } catch (error) {
    if (error instanceof TaskError && (error.why === "too_slow" || error.why === "starved"))
      throw new SvcError("deadline_exceeded", "the encryption of an archive took too long");
    if (error instanceof TaskError && error.why === "too_many")
      throw new SvcError(
        "too_many",
        `cannot encrypt or decrypt the archive: ${bounds.maxWaitingPerName} tasks of this user or ${bounds.maxWaiting} of all users are waiting; try again later`,
      );
    throw error;
  }
}

/** Chunks are transferred to the thread. */
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
      throw invalidField("identity", `line ${at + 1} is not an AGE-SECRET-KEY-1… key`);
  }
  return identities;
}

/** Messages between the daemon and the encryption thread: request and response, by kind. */
export interface AgeTasks {
  /** A header for these recipients, and the payload key; undefined for an invalid recipient. */
  seal: { question: { recipients: readonly string[] }; answer: SealedHeader | undefined };
  open: { question: { head: Uint8Array; identities: readonly string[] }; answer: OpenedHeader };
  encrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array };
  /** Undefined if they are not authentic. */
  decrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array | undefined };
}

export type AgeTask = { [K in keyof AgeTasks]: { kind: K } & AgeTasks[K]["question"] }[keyof AgeTasks];

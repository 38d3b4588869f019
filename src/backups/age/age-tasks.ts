/** What the daemon asks the thread that encrypts and decrypts. */
import type { OpenedHeader, SealedHeader } from "./age-header.ts";
import type { Chunks } from "./age-payload.ts";

/** By what is asked: the question, and its answer. */
export interface AgeTasks {
  /** A header for them, and the key of what comes after it; undefined when one is no recipient. */
  seal: { question: { recipients: readonly string[] }; answer: SealedHeader | undefined };
  open: { question: { head: Uint8Array; identities: readonly string[] }; answer: OpenedHeader };
  encrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array };
  /** Undefined when they are not those that were encrypted. */
  decrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array | undefined };
}

export type AgeTask = { [K in keyof AgeTasks]: { kind: K } & AgeTasks[K]["question"] }[keyof AgeTasks];

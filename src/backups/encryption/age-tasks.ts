/** Messages between the daemon and the encryption thread. */
import type { OpenedHeader, SealedHeader } from "./age-header.ts";
import type { Chunks } from "./age-payload.ts";

/** Request and response, by kind. */
export interface AgeTasks {
  /** A header for these recipients, and the payload key; undefined for an invalid recipient. */
  seal: { question: { recipients: readonly string[] }; answer: SealedHeader | undefined };
  open: { question: { head: Uint8Array; identities: readonly string[] }; answer: OpenedHeader };
  encrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array };
  /** Undefined if they are not authentic. */
  decrypt: { question: Chunks & { key: Uint8Array }; answer: Uint8Array | undefined };
}

export type AgeTask = { [K in keyof AgeTasks]: { kind: K } & AgeTasks[K]["question"] }[keyof AgeTasks];

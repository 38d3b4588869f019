/**
 * What is typed into files and not saved: it stays as long as the tab does, wherever one goes on the page, and when the session
 * ends. Whoever signs out leaves nothing.
 */

export interface FileText {
  /** Undefined for what is no text. */
  readonly text: string | undefined;
  readonly isWhole: boolean;
  readonly etag: string;
}

export interface Draft {
  readonly typed: string;
  /** What it was made of. */
  readonly before: FileText;
}

/** Whose it is: another user who signs in is not shown it. */
export interface DraftPlace {
  readonly uid: number;
  readonly path: string;
}

const drafts = new Map<string, Draft>();
const keyOf = ({ uid, path }: DraftPlace): string => `${uid} ${path}`;
/** The browser asks then, in words of its own. */
const ask = (event: BeforeUnloadEvent): void => event.preventDefault();

export function draftAt(place: DraftPlace): Draft | undefined {
  return drafts.get(keyOf(place));
}

export function keepDraft(place: DraftPlace, draft: Draft): void {
  drafts.set(keyOf(place), draft);
  addEventListener("beforeunload", ask);
}

export function dropDraft(place: DraftPlace): void {
  drafts.delete(keyOf(place));
  if (drafts.size === 0) removeEventListener("beforeunload", ask);
}

export function dropDrafts(): void {
  drafts.clear();
  removeEventListener("beforeunload", ask);
}

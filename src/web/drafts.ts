/**
 * Unsaved text of files. It is stored until the tab closes, across views and the end of a session. Signing
 * out deletes it.
 */

export interface FileText {
  /** Undefined if the file is not text. */
  readonly text: string | undefined;
  readonly isWhole: boolean;
  readonly etag: string;
}

export interface Draft {
  readonly typed: string;
  /** The file that the draft is based on. */
  readonly before: FileText;
}

/** The draft's owner and file: another user who signs in does not see it. */
export interface DraftKey {
  readonly uid: number;
  readonly path: string;
}

const drafts = new Map<string, Draft>();
const keyOf = ({ uid, path }: DraftKey): string => `${uid} ${path}`;
/** The browser asks for confirmation with its own text. */
const ask = (event: BeforeUnloadEvent): void => event.preventDefault();

export function draftAt(key: DraftKey): Draft | undefined {
  return drafts.get(keyOf(key));
}

export function saveDraft(key: DraftKey, draft: Draft): void {
  drafts.set(keyOf(key), draft);
  addEventListener("beforeunload", ask);
}

export function dropDraft(key: DraftKey): void {
  drafts.delete(keyOf(key));
  if (drafts.size === 0) removeEventListener("beforeunload", ask);
}

export function dropDrafts(): void {
  drafts.clear();
  removeEventListener("beforeunload", ask);
}

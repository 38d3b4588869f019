/** Lets the browser keep bytes as a file. */

/** What is held in the tab itself; the browser puts blobs that are large on the disk. */
const heldBytes = 8 * 1024 * 1024;

/**
 * @param pieces in order, each of the content of one message
 * @param name as it is suggested
 */
export async function saveFile(
  pieces: AsyncIterable<{ readonly content?: { readonly data: Uint8Array } | undefined }>,
  name: string,
): Promise<void> {
  let parts: BlobPart[] = [];
  const blobs: Blob[] = [];
  let held = 0;
  const handOver = (): void => {
    blobs.push(new Blob(parts));
    parts = [];
    held = 0;
  };
  for await (const { content } of pieces) {
    if (content === undefined) continue;
    // A Blob takes what no other thread can change meanwhile.
    parts.push(content.data as Uint8Array<ArrayBuffer>);
    held += content.data.length;
    if (held >= heldBytes) handOver();
  }
  handOver();
  const url = URL.createObjectURL(new Blob(blobs));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken it by the next turn.
  setTimeout(() => URL.revokeObjectURL(url));
}

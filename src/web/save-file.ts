/** Saves bytes as a file in the browser. */

/** Bytes to collect in the tab's memory before they become a blob; browsers store large blobs on disk. */
const heldBytes = 8 * 1024 * 1024;

/**
 * @param pieces in order, each the content of one message
 * @param name suggested file name
 */
export async function saveFile(
  pieces: AsyncIterable<{ readonly content?: { readonly data: Uint8Array } | undefined }>,
  name: string,
): Promise<void> {
  let parts: BlobPart[] = [];
  const blobs: Blob[] = [];
  let bufferedBytes = 0;
  const handOver = (): void => {
    blobs.push(new Blob(parts));
    parts = [];
    bufferedBytes = 0;
  };
  for await (const { content } of pieces) {
    if (content === undefined) continue;
    // A Blob accepts only memory that other threads cannot change.
    parts.push(content.data as Uint8Array<ArrayBuffer>);
    bufferedBytes += content.data.length;
    if (bufferedBytes >= heldBytes) handOver();
  }
  handOver();
  const url = URL.createObjectURL(new Blob(blobs));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // By the next task, the browser has started the download.
  setTimeout(() => URL.revokeObjectURL(url));
}

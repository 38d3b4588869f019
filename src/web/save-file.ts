/** Lets the browser keep bytes as a file. */

/**
 * @param pieces in order, each of the content of one message
 * @param name as it is suggested
 */
export async function saveFile(
  pieces: AsyncIterable<{ readonly content?: { readonly data: Uint8Array } | undefined }>,
  name: string,
): Promise<void> {
  const parts: BlobPart[] = [];
  for await (const { content } of pieces) {
    // A Blob takes what no other thread can change meanwhile.
    if (content !== undefined) parts.push(content.data as Uint8Array<ArrayBuffer>);
  }
  const url = URL.createObjectURL(new Blob(parts));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser has taken it by the next turn.
  setTimeout(() => URL.revokeObjectURL(url));
}

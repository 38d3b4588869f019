/** Whether a path or URL names an archive, such as `web.tar.gz` or `web.zip`. */
export function isArchiveFile(name: string): boolean {
  return /\.(?:zip|tgz|tar(?:\.\w+)?)$/.test(name);
}

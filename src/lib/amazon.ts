/** Whether an S3 endpoint belongs to Amazon, which requires the bucket in the host name; most others require it in the path. */
export function isAmazon(endpoint: string): boolean {
  return URL.parse(endpoint)?.hostname.endsWith(".amazonaws.com") === true;
}

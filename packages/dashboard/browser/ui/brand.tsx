/** The mark of the product. */
export function BrandMark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="#0f6b68" />
      <path d="M8 11h16M16 11v12" stroke="#fff" stroke-width="3.2" stroke-linecap="round" fill="none" />
      <circle cx="23" cy="22" r="2.4" fill="#9fe3d8" />
    </svg>
  );
}

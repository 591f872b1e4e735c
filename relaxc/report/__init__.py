"""What a plan will do, drawn: lanes as a page, as text, as a trace; and why. Pure: timelines in, text out."""

"""One verdict on a deployed server: is it speculating, is it paying, is it lossless, what helps."""

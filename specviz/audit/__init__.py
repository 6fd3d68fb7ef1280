"""Audit a deployed server: is it speculating, is it paying, is it lossless, what would help?"""
